"""`gpufair submit --after`: which workloads are meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpufair.cli.exits import Wrong
from gpufair.cli.find import choose

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Workload


def awaited(service: Client, after: Sequence[str], after_any: Sequence[str]) -> dict[str, list[str]]:
    """The fields of a submission that waits for others; empty if it does not.

    Args:
        service: Where they are.
        after: Ids (four characters are enough), names, or several with commas between; these have to end well.
        after_any: The same; these have to end.

    Raises:
        Wrong: One is empty, or there twice.
        NoSuch: There is none.
        Ambiguous: It could be one of several.
    """
    if not after and not after_any:
        return {}
    known = service.workloads()
    found = {"after": _all(known, after, "--after"), "after_any": _all(known, after_any, "--after-any")}
    if both := set(found["after"]) & set(found["after_any"]):
        raise Wrong(f"{min(both)[:8]} is in --after and in --after-any; leave one of them out")
    return {name: ids for name, ids in found.items() if ids}


def _all(known: Sequence[Workload], asked: Sequence[str], option: str) -> list[str]:
    words = [word.strip() for one in asked for word in _split(one)]
    if not all(words):
        raise Wrong(f"{option} {','.join(asked)!r}: write it as ID or ID,ID, without anything empty")
    return list(dict.fromkeys(found for word in words for found in _meant(known, word)))


def _split(text: str) -> list[str]:
    """At commas, but not at those of an array's member: ``train.py[lr=0.1,seed=0]``."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _meant(known: Sequence[Workload], word: str) -> list[str]:
    """A whole array by its name, as far as it is not over, or else the newest of each of its runs; or one workload."""
    array = [one for one in known if one.name.startswith(f"{word}[")]
    if live := [one.id for one in array if one.live]:
        return live
    newest = {one.name: one.id for one in sorted(array, key=lambda one: one.submitted_s)}
    return list(newest.values()) or [choose(known, word).id]
