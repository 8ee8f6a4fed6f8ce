"""Markup of tables and lists. Whatever comes from a trace is text, and is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell says, what it is sorted by where that differs, and whether it is the best of its row."""

    text: str
    value: float | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. The first cell of a row names it."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    wordy: bool = False  # its cells are sentences


def table(one: Table) -> str:
    """A table that can be sorted, and scrolled by itself where it is too wide."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in one.heads)
    rows = "".join(f"<tr>{_row(row, one.wordy)}</tr>\n" for row in one.rows)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(one.caption)}"><table class="sortable">'
        f"<caption>{escape(one.caption)}</caption><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>"
    )


def _row(cells: Sequence[Cell], wordy: bool) -> str:
    name, *rest = cells
    return f'<th scope="row">{escape(name.text)}</th>' + "".join(_cell(cell, wordy) for cell in rest)


def _cell(cell: Cell, wordy: bool) -> str:
    kinds = " ".join(kind for kind, true in (("best", cell.best), ("text", wordy)) if true)
    attributes = f' class="{kinds}"' if kinds else ""
    if cell.value is not None:
        attributes += f' data-value="{cell.value!r}"'
    # Colour alone tells nothing to who cannot see it.
    spoken = '<span class="spoken"> (best)</span>' if cell.best else ""
    return f"<td{attributes}>{escape(cell.text)}{spoken}</td>"


def folded(summary: str, *inside: str) -> str:
    """Something that is opened by who wants to see it."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(inside)}</details>"


def section(identity: str, title: str, *inside: str, kind: str = "") -> str:
    """A part of the page under a heading of its own."""
    return (
        f'<section id="{identity}" class="{kind}" aria-labelledby="{identity}-title"><h2 id="{identity}-title">{escape(title)}</h2>'
        f"{''.join(inside)}</section>"
    )


def items(texts: Iterable[str]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f'<p class="soft">{escape(text)}</p>'


def pairs(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in facts)}</dl>"


def cards(every: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """One card for each of some things: its name, and facts of it."""
    made = "".join(f"<li><h2>{escape(name)}</h2>{pairs(facts)}</li>" for name, facts in every)
    return f'<ul class="cards" aria-label="The policies in short">{made}</ul>'
