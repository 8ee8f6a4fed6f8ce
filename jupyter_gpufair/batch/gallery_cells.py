"""The cells of a run as HTML, at most so large, and its first figure.

The HTML is what the notebook's author made of it, scripts included: show it where none of it can do anything.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from gpufair.cli.words import plural

# Those that need no script; others are shown by one of these, as Jupyter stores them side by side.
_SHOWN = ("image/png", "image/jpeg", "image/svg+xml", "text/html", "text/markdown", "text/latex", "text/plain")
_FIGURES = ("image/png", "image/jpeg", "image/svg+xml")
# Stands in the cells for the first figure, that the page need not hold it twice.
FIGURE = "gpufair-first-figure"


@dataclass(frozen=True, slots=True)
class Cells:
    """What is shown of a run.

    Attributes:
        attribute: Its cells as HTML, written as an attribute in single quotes, with ``FIGURE`` for ``figure``.
        figure: The first one as a data URL; "": there is none.
        left_out: What was too large, as a sentence; "": nothing.
    """

    attribute: str
    figure: str
    left_out: str


class Renderer:
    """Makes HTML of notebooks, one after the other."""

    def __init__(self) -> None:
        quiet = logging.getLogger(__name__)
        quiet.setLevel(logging.CRITICAL)  # that a figure has no alternative text is nobody's news here
        self._exporter = HTMLExporter(template_name="basic", log=quiet)  # type: ignore[no-untyped-call]

    def cells(self, notebook: NotebookNode, most_bytes: int) -> Cells:
        """Render it; the largest outputs are left out until it fits. ``notebook`` is changed."""
        notebook.metadata.pop("widgets", None)
        outputs = [(cell.outputs, at) for cell in notebook.cells if cell.cell_type == "code" for at in range(len(cell.outputs))]
        for holder, at in outputs:
            _reduce(holder[at])
        sizes = [_size(holder[at]) for holder, at in outputs]
        order = sorted(range(len(outputs)), key=lambda one: (-sizes[one], one))
        total, gone = sum(sizes), 0
        for one in order:
            if total <= most_bytes // 2:
                break
            holder, at = outputs[one]
            holder[at] = _said(f"[{sizes[one]:,} bytes are left out here; open the notebook itself]\n")
            total, gone = total - sizes[one], gone + 1
        # Rendering takes its time, and makes no text shorter.
        if sum(len(cell.source) for cell in notebook.cells) > most_bytes:
            return _nothing(notebook)
        html, _ = self._exporter.from_notebook_node(notebook)
        figure = _first_figure(notebook)
        html = html.replace(figure, FIGURE) if figure else html
        attribute = _bytes(html).decode().replace("&", "&amp;").replace("'", "&#39;")
        if len(_bytes(attribute)) + len(figure) > most_bytes:
            return _nothing(notebook)
        return Cells(attribute, figure, f"{gone} of {len(outputs)} outputs" if gone else "")


def _nothing(notebook: NotebookNode) -> Cells:
    return Cells("", "", f"all of its {plural(len(notebook.cells), 'cell')}")


def _reduce(output: NotebookNode) -> None:
    data = output.get("data")
    if not isinstance(data, dict):
        return
    for kind in [kind for kind in data if kind not in _SHOWN]:
        del data[kind]
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            data[kind] = "".join(str(data[kind]).split())


def _size(output: NotebookNode) -> int:
    parts = [*output.get("data", {}).values(), output.get("text", ""), *output.get("traceback", [])]
    return sum(len(_bytes(str(part))) for part in parts)


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")  # JSON can spell halves of characters, which no file can hold


def _said(text: str) -> NotebookNode:
    output: NotebookNode = nbformat.v4.new_output("stream", text=text)  # type: ignore[no-untyped-call]
    return output


def _first_figure(notebook: NotebookNode) -> str:
    """As a data URL; a browser runs no script of an image."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for kind in _FIGURES:
                if data := output.get("data", {}).get(kind):
                    encoded = base64.b64encode(_bytes(str(data))).decode() if kind == "image/svg+xml" else data
                    if encoded.isascii() and not set(encoded) & set("\"'<>&"):
                        return f"data:{kind};base64,{encoded}"
    return ""
