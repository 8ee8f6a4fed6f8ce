"""How far a long command has come, on standard error; nothing where nobody looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float], None]


@contextmanager
def progress(what: str, total: float) -> Iterator[Advance]:
    """A bar for one thing; call what is yielded with how much of ``total`` is done."""
    with bars({what: total}) as advance:
        yield lambda done: advance(what, done)


@contextmanager
def bars(totals: dict[str, float]) -> Iterator[Callable[[str, float], None]]:
    """A bar for each of several things that go on at once."""
    if not sys.stderr.isatty():
        yield lambda _what, _done: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415  # only where one is seen

    from gpufair.cli.output import console  # noqa: PLC0415  # as above

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as shown:
        tasks = {what: shown.add_task(what, total=total or None) for what, total in totals.items()}
        yield lambda what, done: shown.update(tasks[what], completed=done)
