"""Which workload a user means: an id, the beginning of one, or a name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpufair.cli.exits import Ambiguous, NoSuch
from gpufair.cli.words import clean

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Workload

SHORTEST = 4  # characters of an id that are enough, where they are unique
_SHOWN = 8


def find(service: Client, text: str) -> Workload:
    """The one workload that ``text`` names. One that is not over wins over those that are.

    Raises:
        NoSuch: None does, or ``text`` is too short.
        Ambiguous: Several do; the error lists them.
    """
    return choose(service.workloads(), text)


def choose(workloads: Sequence[Workload], text: str) -> Workload:
    """``find`` among ``workloads``."""
    exact = [w for w in workloads if w.id == text]
    if exact:
        return exact[0]
    named = [w for w in workloads if text in (w.name, w.label)] if text else []
    begun = [w for w in workloads if w.id.startswith(text)] if len(text) >= SHORTEST else []
    for found in (named, begun):
        live = [w for w in found if w.live]
        if len(live or found) == 1:
            return (live or found)[0]
        if found:
            raise Ambiguous(f"{text!r} could be any of {_listed(live or found)}; write more of the id")
    raise NoSuch(_nothing(workloads, text))


def _nothing(workloads: Sequence[Workload], text: str) -> str:
    if 0 < len(text) < SHORTEST and any(w.id.startswith(text) for w in workloads):
        return f"{text!r} is too short for an id; write at least {SHORTEST} characters"
    close = difflib.get_close_matches(text, [w.label for w in workloads], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`gpufair sessions list --all` shows the known ones"
    return f"there is no workload {text!r}; {hint}"


def _listed(workloads: Sequence[Workload]) -> str:
    shown = ", ".join(f"{w.id} ({clean(w.label, 40)}, {w.state})" for w in workloads[:_SHOWN])
    return shown + (f" and {len(workloads) - _SHOWN} more" if len(workloads) > _SHOWN else "")
