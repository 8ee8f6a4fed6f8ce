"""``__gpufair_park__`` and ``__gpufair_unpark__``: objects that prepare themselves for a checkpoint.

Before a checkpoint ``__gpufair_park__()`` of each such object is called: the object lets go of what cannot be saved (a
connection, a file, a buffer on a device). ``__gpufair_unpark__()`` takes it up again: in the new process after a restore,
and in the old one if the session goes on. Found are the values of variables, and what lies in lists, tuples, sets and
dicts of theirs. An object may have one of the two methods only. A hook that fails costs the variables that hold the
object, by name, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from gpufair.workload.preemption import call, name_of

PARK, UNPARK = "__gpufair_park__", "__gpufair_unpark__"
_MAX_VISITED = 20_000  # of objects in containers; a list of a million floats is no place for connections
_MAX_DEPTH = 4
_CONTAINERS = (list, tuple, set, frozenset, dict)
Hooked = list[tuple[str, Any]]  # variable, object


def hooked(namespace: dict[Any, Any], names: Iterable[Any] | None = None) -> Hooked:
    """The objects with hooks, each with the variable under which it was found first."""
    seen: set[int] = set()
    found: Hooked = []
    left = _MAX_VISITED
    for name in list(namespace) if names is None else names:
        if not isinstance(name, str) or name not in namespace:
            continue
        level = [namespace[name]]
        for _ in range(_MAX_DEPTH):
            inner: list[Any] = []
            for value in level:
                kind = type(value)
                if kind in _CONTAINERS:
                    if id(value) in seen or len(value) > left:
                        continue
                    seen.add(id(value))
                    left -= len(value)
                    inner += value.values() if kind is dict else value
                elif (hasattr(kind, PARK) or hasattr(kind, UNPARK)) and id(value) not in seen:
                    seen.add(id(value))
                    found.append((name, value))
            level = inner
    return found


class Parked:
    """Objects whose ``__gpufair_park__`` has been called. Call ``unpark`` if the process goes on."""

    def __init__(self, namespace: dict[str, Any], limit_s: float) -> None:
        """Main thread. Hooks share ``limit_s``."""
        self._objects = hooked(namespace)
        self._namespace = namespace
        self.failed: dict[str, str] = _call(PARK, self._objects, limit_s, namespace)

    def unpark(self, limit_s: float) -> dict[str, str]:
        """Take up again what was let go of. variable -> reason of those that failed; they stay as they are."""
        objects, self._objects = self._objects, []
        return _call(UNPARK, objects, limit_s, self._namespace)


def unpark_restored(namespace: dict[str, Any], names: Iterable[str], limit_s: float) -> dict[str, str]:
    """After a restore: call the hooks of what came back. Variables whose hook fails are removed: name -> reason."""
    failed = _call(UNPARK, hooked(namespace, names), limit_s, namespace)
    for name in failed:
        namespace.pop(name, None)
    return failed


def _call(hook: str, objects: Hooked, limit_s: float, namespace: dict[str, Any]) -> dict[str, str]:
    end = time.monotonic() + limit_s
    failed: dict[str, str] = {}
    for name, value in objects:
        function = getattr(type(value), hook, None)
        if function is None:
            continue
        left = end - time.monotonic()
        problem = call(lambda: function(value), left) if left > 0 else "no time was left for it"  # noqa: B023 - called here
        if problem is not None:
            reason = f"{hook} of {name_of(type(value))} failed: {problem}"
            failed |= dict.fromkeys(_holders(namespace, name, value), reason)
    return failed


def _holders(namespace: dict[str, Any], name: str, value: object) -> list[str]:
    """The variables that are this object, and the one under which it was found."""
    return [name, *(other for other, held in namespace.items() if held is value and other != name)]
