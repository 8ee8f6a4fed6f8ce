"""The classic rule: the core with fair share and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from gpufair.core.model import Policy
from gpufair.core.state import State

# What makes the classic rule classic; the user's word counts for everything else (window, cap, graces, grid, ...).
_DEFINING: Final = tuple(
    one.name for one in fields(Policy) if getattr(Policy.plain(), one.name) != getattr(Policy(), one.name)
)


def plain(policy: Policy) -> State:
    """The core under these options, but for those that ``Policy.plain`` sets."""
    classic = Policy.plain()
    return State(replace(policy, **{name: getattr(classic, name) for name in _DEFINING}))
