"""The journal as a list of what happened and what was decided, for reports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gpufair.service.storage.store import Entry


def records(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Events and actions in order: ``{"at_s", "seq", "type": "event" | "action", "kind": class, ...fields}``.

    How a workload is run (``launch``) is reduced to what kind of thing it is: arguments and variables may be private.
    """
    result: list[dict[str, Any]] = []
    for entry in entries:
        at_s = entry.at_ms / 1000
        result.append(_record(at_s, entry.seq, "event", json.loads(entry.event)))
        result += [_record(at_s, entry.seq, "action", action) for action in json.loads(entry.actions)]
    return result


def without_names(record: dict[str, Any]) -> dict[str, Any]:
    """A record for other users: nothing that tells what somebody works on."""
    private = {"lost": [], "name": "", "notebook": "", "reason": ""}
    return {key: _mask(value, private) for key, value in record.items() if key not in private}


def _record(at_s: float, seq: int, kind: str, plain: dict[str, Any]) -> dict[str, Any]:
    # An event's ``at`` is the entry's; an action's is a field of its own, as that of a landing.
    told = ("type", "at") if kind == "event" else ("type",)
    fields = {key: reduced(value) for key, value in plain.items() if key not in told}
    return {"at_s": at_s, "seq": seq, "type": kind, "kind": plain["type"]} | fields


def reduced(value: Any) -> Any:
    """A field of an event without arguments and variables of whatever is to be run."""
    if not isinstance(value, dict):
        return value
    launch = value.get("launch")
    if isinstance(launch, dict):
        value = value | {"launch": {key: launch[key] for key in ("type", "kernel_name") if key in launch}}
    return value


def _mask(value: Any, private: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: private[key] if key in private else _mask(item, private) for key, item in value.items()}
    return value
