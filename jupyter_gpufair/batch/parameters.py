"""Parameters as they are written on a command line, and where they go in a notebook."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from nbformat import NotebookNode
from papermill.exceptions import PapermillException
from papermill.parameterize import parameterize_notebook

from gpufair.client.notebooks import BadNotebook

Value = str | int | float | bool | None
_WORDS: dict[str, Value] = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}


def typed(text: str) -> Value:
    """What was meant: a number, a truth value, None, or else the text."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parameterized(notebook: NotebookNode, parameters: Mapping[str, Value]) -> NotebookNode:
    """With a cell that sets them after the one with the tag ``parameters``, as papermill has it."""
    if not parameters:
        return notebook
    logging.getLogger("papermill").setLevel(logging.ERROR)  # that the input has no such cell is no news
    # What papermill takes for granted of a notebook that it has read itself.
    notebook.metadata.setdefault("papermill", {})
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])
    spec = notebook.metadata.get("kernelspec", {})
    name, language = str(spec.get("name", "python3")), str(spec.get("language", "python"))
    try:
        found: NotebookNode = parameterize_notebook(notebook, dict(parameters), kernel_name=name, language=language)
    except PapermillException as err:
        raise BadNotebook(f"the parameters cannot be set: {err}") from err
    return found
