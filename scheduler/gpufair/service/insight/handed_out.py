"""The live state as it is handed to those who try budgets and options on it: nothing of how anything is run."""

from __future__ import annotations

import json
from typing import Any, Final

from gpufair.core import snapshot as core_snapshot
from gpufair.core.state import State
from gpufair.core.units import HOUR, Instant

# Of what ended longer ago nothing is reported any more, and a service that runs for months has very many of these.
KEPT_ENDED: Final = HOUR


def snapshot_text(state: State, seq: int, now: Instant, version: str, *, names: bool) -> str:
    """The state after journal entry ``seq`` as JSON: ``{"seq", "at_s", "now_s", "version", "state"}``.

    Args:
        state: A copy; workloads that ended long ago are dropped from it.
        seq: The number of the last entry in it.
        now: The present; ``at_s`` is the instant of the last entry.
        version: Of the gpufair that writes it.
        names: Leave in what tells what somebody works on: names of workloads, reasons, names of variables.
    """
    state.forget(Instant(state.now - KEPT_ENDED))
    plain = core_snapshot.snapshot(state)
    plain["workloads"] = [_without_private(record, names=names) for record in plain["workloads"]]
    answer = {"seq": seq, "at_s": state.now / 1000, "now_s": now / 1000, "version": version, "state": plain}
    return json.dumps(answer, separators=(",", ":"), allow_nan=False)


def _without_private(record: dict[str, Any], *, names: bool) -> dict[str, Any]:
    record = record | {"spec": record["spec"] | {"launch": {}}}
    if names:
        return record
    record |= {"spec": record["spec"] | {"name": ""}, "reason": "", "lost": [], "failure": ""}
    if record["checkpoint"] is not None:
        record["checkpoint"] = record["checkpoint"] | {"lost": []}
    if record["exit"] is not None:
        record["exit"] = [record["exit"][0], ""]
    return record
