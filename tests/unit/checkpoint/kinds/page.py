"""The tables of docs/saved-objects.md, from the tables of the tests and from the reasons in the code."""

from __future__ import annotations

import re
from pathlib import Path

from gpufair.node.checkpoint.reasons import causes
from tests.unit.checkpoint.kinds import TITLES, kinds_of

PAGE = Path(__file__).parents[4] / "docs" / "saved-objects.md"


def renewed(page: str) -> str:
    """The page with its two tables as they should be."""
    for name, table in (("saved", _saved()), ("lost", _lost())):
        page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{table}\g<2>", page, flags=re.DOTALL)
    return page


def _saved() -> str:
    lines = ["| of | kinds of objects |\n|---|---|\n"]
    lines += [
        f"| {title} ({len(kinds_of(group))}) | {'; '.join(kinds_of(group))} |\n" for group, title in TITLES.items()
    ]
    return "".join(lines)


def _lost() -> str:
    rows = "".join(f"| {cause.what} | {cause.remedy} |\n" for cause in causes())
    return f"| what | why, and what to do |\n|---|---|\n{rows}"
