"""The core's events, actions and state as JSON texts for the journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from gpufair.core import codec
from gpufair.core.actions import Action
from gpufair.core.errors import GpufairError
from gpufair.core.events import Event
from gpufair.core.model import Policy


def dump_event(event: Event) -> str:
    """An event as JSON."""
    return _dump(codec.encode(event))


def dump_actions(actions: Sequence[Action]) -> str:
    """Actions as JSON."""
    return _dump([codec.encode(action) for action in actions])


def load_event(text: str) -> Event:
    """Back from ``dump_event``.

    Raises:
        GpufairError: It is no event that this version knows.
    """
    return codec.decode_event(_load(text))


def load_actions(text: str) -> list[Action]:
    """Back from ``dump_actions``.

    Raises:
        GpufairError: There is something in it that this version doesn't know.
    """
    return [codec.decode_action(item) for item in _load(text)]


_last_digest: list[tuple[Policy, str]] = []  # at most one: every entry of the journal asks, and options seldom change


def policy_digest(policy: Policy) -> str:
    """Names the options by which something was decided."""
    for known, digest in _last_digest:
        if known is policy:  # frozen; it holds mappings, so it has no hash to be found by
            return digest
    digest = hashlib.sha256(_dump(codec.encode(policy)).encode()).hexdigest()[:16]
    _last_digest[:] = [(policy, digest)]
    return digest


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise GpufairError(f"not JSON: {err}") from err
