"""A gallery of runs as one HTML file. It loads nothing, and what notebooks brought along runs nowhere.

Cells stand in attributes until a run is opened, and then in a frame with an empty sandbox: no scripts, no forms, an origin of
its own. The page's policy holds in the frame as well: nothing is fetched there, so that nobody learns who looks.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from pygments.formatters import HtmlFormatter

from gpufair.cli.words import span
from jupyter_gpufair.batch.gallery_cells import FIGURE, Cells
from jupyter_gpufair.batch.gallery_runs import Run

_MAX_PARAMETERS: Final = 30  # columns; a run's own row names all
_FIGURE = '<img loading="lazy" alt="first figure" src="{}">'
_FRAME = "<iframe sandbox title=\"{}\" data-cells='{}'></iframe>"
_STYLE = """
:root { color-scheme: light dark; } body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; }
table { border-collapse: collapse; } td, th { padding: .3em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
th button, td button { all: unset; cursor: pointer; } th button { font-weight: 600; } td button { color: LinkText; }
button:focus-visible { outline: 2px solid; } th[aria-sort=ascending] button::after { content: ' ▲'; }
th[aria-sort=descending] button::after { content: ' ▼'; } td.number { text-align: right; white-space: nowrap; }
td img { max-width: 120px; max-height: 80px; background: #fff; } iframe { width: 100%; height: 75vh; border: 1px solid #8886; background: #fff; resize: vertical; }
"""
_FRAME_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 1em; color: #111; } img { max-width: 100%; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0; } .input_area { background: #f5f5f5; padding: .2em .6em; }
.prompt { color: #777; font: 12px monospace; } .output_stderr { background: #fdd; } .output_error { border-left: 3px solid #c00; padding-left: .6em; }
.anchor-link { display: none; } table { border-collapse: collapse; } td, th { padding: .1em .6em; text-align: right; }
.ansi-red-fg { color: #b22; } .ansi-green-fg { color: #070; } .ansi-blue-fg { color: #22b; } .ansi-cyan-fg { color: #077; } .ansi-bold { font-weight: bold; }
"""
_SCRIPT = """
const table = document.querySelector('table'), frameStyle = STYLE, mark = MARK;
for (const head of table.querySelectorAll('thead th')) head.firstElementChild?.addEventListener('click', () => {
  const at = head.cellIndex, down = head.ariaSort === 'ascending' ? -1 : 1;
  for (const other of table.querySelectorAll('th')) other.removeAttribute('aria-sort');
  head.ariaSort = down === 1 ? 'ascending' : 'descending';
  const value = (run) => run.rows[0].cells[at].dataset.value ?? run.rows[0].cells[at].textContent;
  const compare = (a, b) => {
    if (a === '' || b === '') return (a === '') - (b === '');
    const numbers = a.trim() !== '' && b.trim() !== '' && !isNaN(a) && !isNaN(b);
    return down * (numbers ? a - b : a.localeCompare(b));
  };
  table.append(...[...table.tBodies].map((run) => [value(run), run]).sort((a, b) => compare(a[0], b[0])).map((pair) => pair[1]));
});
for (const button of table.querySelectorAll('td button')) button.addEventListener('click', () => {
  const run = button.closest('tbody'), frame = run.querySelector('iframe');
  run.rows[1].hidden = !run.rows[1].hidden;
  button.ariaExpanded = String(!run.rows[1].hidden);
  if (frame && !frame.srcdoc)
    frame.srcdoc = '<!doctype html><style>' + frameStyle + '</style>' + frame.dataset.cells.replaceAll(mark, () => run.querySelector('img')?.src ?? '');
});
"""


def page(
    about: str,
    runs: Sequence[Run],
    cells_of: Callable[[Run], Cells],
    skipped: Sequence[tuple[str, str]],
    left_out: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """The file, piece by piece. ``skipped`` and ``left_out`` are paths with reasons."""
    names = list(dict.fromkeys(name for run in runs for name in run.parameters))[:_MAX_PARAMETERS]
    code = HtmlFormatter().get_style_defs(".highlight")
    style = json.dumps(f"{_FRAME_STYLE}{code}".replace("<", ""))
    script = _SCRIPT.replace("STYLE", style, 1).replace("MARK", json.dumps(FIGURE), 1)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    yield (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'\">"
        f"<title>{escape(about)}</title><style>{_STYLE}</style><h1>{escape(about)}</h1>"
    )
    heads = ("Name", "State", *names, "Started", "Took", "GPU-hours", "Preemptions", "Ran again", "Failed cell")
    yield "<table><thead><tr>"
    yield "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in heads)
    yield '<th scope="col">Figure</th></tr></thead>'
    for run in runs:
        yield _run(run, names, cells_of(run), len(heads) + 1)
    yield f"</table>{_list('Left out', left_out)}{_list('Skipped', skipped)}<script>{script}</script></html>\n"


def _run(run: Run, names: Sequence[str], cells: Cells, width: int) -> str:
    again = ", ".join(map(str, run.ran_again))
    failed = "" if run.failed_cell is None else f"{run.failed_cell}: {run.error}"
    row = (
        f'<td><button type="button" aria-expanded="false">{escape(run.path)}</button></td>',
        f"<td>{escape(run.state)}</td>",
        *(_cell(run.parameters.get(name, "")) for name in names),
        _number(run.started_s, "" if run.started_s is None else _when(run.started_s)),
        _number(run.duration_s, span(run.duration_s)),
        _number(run.gpu_hours, f"{run.gpu_hours:.3f}"),
        _number(run.preemptions, str(run.preemptions)),
        f'<td data-value="{len(run.ran_again)}">{escape(f"cells {again}" if again else "")}</td>',
        _number(run.failed_cell, failed).replace(' class="number"', ""),
        f"<td>{_FIGURE.format(cells.figure) if cells.figure else ''}</td>",
    )
    facts = {"workload": run.workload, "allocation": run.allocation, **run.parameters}
    told = " · ".join(f"{escape(name)} {escape(str(value))}" for name, value in facts.items() if value != "")
    told += f"<br>Left out: {escape(cells.left_out)}; open the notebook itself." if cells.left_out else ""
    frame = _FRAME.format(escape(run.path), cells.attribute) if cells.attribute else ""
    return f'<tbody><tr>{"".join(row)}</tr><tr hidden><td colspan="{width}"><p>{told}</p>{frame}</td></tr></tbody>\n'


def _cell(value: object) -> str:
    return f'<td data-value="{escape(str(value))}">{escape(str(value))}</td>'


def _number(value: float | None, shown: str) -> str:
    return f'<td class="number" data-value="{"" if value is None else value}">{escape(shown)}</td>'


def _when(instant_s: float) -> str:
    return dt.datetime.fromtimestamp(instant_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _list(title: str, found: Sequence[tuple[str, str]]) -> str:
    if not found:
        return ""
    items = "".join(f"<li><b>{escape(path)}</b>: {escape(reason)}</li>" for path, reason in found)
    return f"<h2>{title} ({len(found)})</h2><ul>{items}</ul>"
