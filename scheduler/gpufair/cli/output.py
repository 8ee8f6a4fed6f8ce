"""Results on standard output: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

import typer

from gpufair.cli.words import NOTHING, clean

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2  # spaces between columns
# Where nobody looks at a terminal, nothing may be cut off: scripts grep whole names.
_PIPE_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``rank`` 0 is always shown; on a narrow terminal higher ranks go first."""

    title: str
    rank: int = 0
    right: bool = False


def emit_json(value: object) -> None:
    """``value`` (dataclasses included) as JSON on standard output."""
    typer.echo(json.dumps(_plain(value), indent=2))


def line(text: str) -> None:
    """One sentence on standard output."""
    typer.echo(text)


def console(*, err: bool = False) -> Console:
    """A console that colours only a terminal, and never with ``NO_COLOR``."""
    from rich.console import Console  # noqa: PLC0415  # 40 ms that --json need not pay

    tty = (sys.stderr if err else sys.stdout).isatty()
    return Console(stderr=err, highlight=False, width=None if tty else _PIPE_WIDTH)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Print ``rows``; ``empty`` is said in their place if there are none."""
    from rich.table import Table  # noqa: PLC0415  # as above
    from rich.text import Text  # noqa: PLC0415

    cells = [[clean(cell) or NOTHING for cell in row] for row in rows]
    if not cells:
        line(empty)
        return
    out = console()
    kept = _fitting(columns, cells, out.width)
    made = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for at in kept:
        made.add_column(
            columns[at].title, justify="right" if columns[at].right else "left", overflow="ellipsis", no_wrap=True
        )
    for row in cells:
        made.add_row(*(Text(row[at], style=_style(row[at])) for at in kept))
    out.print(made)
    if len(kept) < len(columns):
        left_out = ", ".join(column.title for at, column in enumerate(columns) if at not in kept)
        # On standard error: it is no row, and whoever pipes the table has all columns anyway.
        typer.echo(f"(no room for {left_out}; widen the terminal, or use --json)", err=True)


def pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, one a line."""
    shown = [(name, clean(value, 2000)) for name, value in rows]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name:<{width}}  {value}")


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    from rich.cells import cell_len  # noqa: PLC0415  # as above

    widths = [
        max(cell_len(text) for text in (column.title, *(row[at] for row in cells))) for at, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(widths[at] + _GAP for at in kept) - _GAP > width:
        least = max(kept, key=lambda at: (columns[at].rank, at))
        if columns[least].rank == 0:
            break
        kept.remove(least)
    return kept


_STYLES = {"running": "green", "ready": "green", "queued": "yellow", "cordoned": "yellow", "lost": "red"}


def _style(text: str) -> str:
    return _STYLES.get(text.partition(",")[0], "")


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
