"""Tables of separated values, line by line, with a header that names the columns in any order."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.source import Source

T = TypeVar("T")
Splitter = Callable[[str], list[str]]
ABSENT: Final = ""


def split(text: str) -> list[str]:
    """The cells of one line. A cell may be quoted; none goes on in the next line. Raises ``Wrong``."""
    if '"' not in text:
        return text.split(",")
    try:
        (cells,) = csv.reader((text,), strict=True)
    except (csv.Error, ValueError):
        raise Wrong("a quote is not closed, or there is text beside one") from None
    return cells


def split_at_bars(text: str) -> list[str]:
    """The cells of one line in which they are separated by bars, and never quoted."""
    return text.split("|")


def column_names(text: str, cells: Splitter = split) -> list[str]:
    """The names in a header, in lower case."""
    try:
        return [cell.strip().lower() for cell in cells(text)]
    except Wrong:
        return []


class Table:
    """A file with a header.

    Args:
        source: The file.
        needed: Columns without which there is nothing to be read; of names with a bar between them, one will do.
        header: The columns of a file without a header.
        cells: How a line is split.

    Raises:
        TraceError: The columns aren't there.
    """

    def __init__(
        self, source: Source, needed: Sequence[str], *, header: Sequence[str] = (), cells: Splitter = split
    ) -> None:
        self._lines: Iterator[tuple[int, str]] = source.lines()
        self._cells = cells
        line = 1
        if not header:
            line, first = next(self._lines, (1, ""))
            header = column_names(first, cells)
        self._header = [name.lower() for name in header]
        if missing := [name for name in needed if not any(map(self.has, name.split("|")))]:
            found = ", ".join(shown(name) for name in self._header[:20])
            wanted = ", ".join(name.replace("|", " or ") for name in missing)
            raise source.error(f"it has no column {wanted}; its columns are {found}", line)
        if twice := sorted({name for name in self._header if name and self._header.count(name) > 1}):
            raise source.error(f"it has more than one column {', '.join(shown(name) for name in twice)}", line)

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._header

    def at(self, *names: str) -> int:
        """The place of the first of these columns in the cells of a line; if there is none, that of an empty cell."""
        return next((self._header.index(name) for name in names if name in self._header), len(self._header))

    def rows(self, bad: Callable[[int, str], None]) -> Iterator[tuple[int, list[str]]]:
        """The lines after the header as cells, with an empty one appended. Others are told to ``bad``."""
        width = len(self._header)
        for line, text in self._lines:
            try:
                cells = self._cells(text)
                if len(cells) != width:
                    raise Wrong(f"it has {len(cells)} columns where the header has {width}")
            except Wrong as wrong:
                bad(line, str(wrong))
                continue
            cells.append(ABSENT)
            yield line, cells


class Memo(dict[str, T], Generic[T]):
    """A reader of texts that come again and again: one value for each, so that they share memory, too."""

    def __init__(self, read: Callable[[str], T]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> T:
        value = self[text] = self._read(text)
        return value


def optional(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same reader for cells that may be empty."""
    return lambda text: read(text) if text.strip() else None
