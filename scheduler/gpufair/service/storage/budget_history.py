"""Who changed the budgets, when, why, and what became of whom: written down with the change, and kept for good."""

from __future__ import annotations

import json
from typing import Any, Final

import sqlalchemy as sa

from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath
from gpufair.service.storage.database import metadata

MOST_ROWS: Final = 500  # of one change: a tree of thousands that is replaced is not repeated in full

_history = sa.Table(
    "budget_history",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)


def difference(before: Tree, after: Tree) -> list[dict[str, Any]]:
    """A row for each allocation that came, went, or has another share or other members; in the order of paths."""
    rows = []
    for path in sorted((before.paths | after.paths) - {""}):
        old, new = _plain(before, path), _plain(after, path)
        if old["share"] != new["share"] or old["members"] != new["members"]:
            change = "added" if path not in before else "removed" if path not in after else "changed"
            rows.append({"path": path, "change": change, "before": old, "after": new})
    return rows


def note(connection: sa.Connection, at_ms: int, by: str, why: str, request: int, rows: list[dict[str, Any]]) -> None:
    """Keep one change. ``request``: the number of the one that it fulfils; 0: none."""
    document = {"by": by, "why": why, "request": request or None, "allocations": rows[:MOST_ROWS], "count": len(rows)}
    connection.execute(sa.insert(_history), {"at_ms": at_ms, "document": json.dumps(document)})


def listed(connection: sa.Connection, before: int = 0, limit: int = 100) -> list[dict[str, Any]]:
    """The newest first; ``before``: only those with a smaller number (0: all)."""
    query = sa.select(_history).order_by(_history.c.number.desc()).limit(limit)
    if before:
        query = query.where(_history.c.number < before)
    return [
        {"number": row.number, "at_s": row.at_ms / 1000} | json.loads(row.document) for row in connection.execute(query)
    ]


def _plain(tree: Tree, path: AllocationPath) -> dict[str, Any]:
    if path not in tree:
        return {"share": None, "entitlement": None, "members": []}
    node = tree[path]
    share = node.share.numerator if node.share.denominator == 1 else float(node.share)
    return {"share": str(share), "entitlement": float(node.entitlement), "members": list(node.members)}
