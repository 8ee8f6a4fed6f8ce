"""Lists in pages: each answer names the place at which the next one begins.

A cursor is the key of the last item that was told, not a count of them: what comes and goes meanwhile neither hides an item
nor tells one twice, as long as its own key stays.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from gpufair.service.problems import BadRequest

Item = TypeVar("Item")
Key = list[float | str]  # of one kind for one list

MOST = 10_000  # items of one page
Limit = Annotated[int | None, Query(ge=1, le=MOST, description="At most so many; left out: all.")]
Cursor = Annotated[str | None, Query(max_length=512, description="`next` of the page before; left out: the first page.")]


def place(cursor: str | None, kinds: Sequence[type]) -> Key | None:
    """The key that ``cursor`` stands for, whose parts are of ``kinds``; None for the first page.

    Raises:
        BadRequest: It is no cursor of this list.
    """
    if cursor is None:
        return None
    try:
        key = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if not isinstance(key, list) or [type(part) for part in key] != list(kinds):
            raise ValueError(key)
    except (ValueError, RecursionError, binascii.Error) as err:
        raise BadRequest("this cursor is none of this list; begin without one, and take `next` of the answer") from err
    return key


def cut(found: Sequence[Item], key: Callable[[Item], Key], limit: int | None) -> tuple[list[Item], str | None]:
    """The first ``limit`` of what follows the last page, and the next cursor; None where nothing is left."""
    if limit is None or len(found) <= limit:
        return list(found), None
    last = json.dumps(key(found[limit - 1]), separators=(",", ":")).encode()
    return list(found[:limit]), base64.urlsafe_b64encode(last).decode()
