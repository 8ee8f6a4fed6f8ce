"""Cells that run again when a preemption cuts them: what a gate offers to the kernel, and when it keeps its word.

The user asks for it by a tag of the cell or by ``%gpufair rerun on``. With each cell that it sends, a gate offers to send
it again. A kernel that takes the offer has a checkpoint of the moment before the cell, saves nothing when it is cut, and
names that checkpoint in its reply and in its last output, which the record keeps. If the session goes back to just that
checkpoint, the cell is put back before all others, and the kernel makes sure that it has loaded it before it runs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpufair.client import Workload
from gpufair.client.overview import moves
from jupyter_gpufair.cell import MOVING, Cell
from jupyter_gpufair.offer import AWAY, tagged

MAX_RUNS = 10  # so often it is put back; a cell that needs longer than it ever gets would never end


def offered(cell: Cell) -> list[bytes]:
    """The cell as it is sent."""
    told: dict[str, Any] = {"again": cell.runs < MAX_RUNS or cell.again_from == AWAY}
    if cell.again_from == AWAY:
        told |= {"from": AWAY, "text": "gpufair: this cell goes on in the CPU pool.\n"}
    elif cell.again_from is not None:
        text = f"gpufair: a preemption cut this cell; it runs again from its beginning (run {cell.runs + 1}).\n"
        told |= {"from": cell.again_from, "text": text}
    return [*cell.parts[:2], json.dumps({**cell.metadata, "gpufair": told}).encode(), *cell.parts[3:]]


def possible(cell: Cell, begins_with: str | None, workload: Workload) -> bool:
    """Whether a cell that was cut may be sent again, now that its kernel is gone or replaced."""
    if begins_with == AWAY:
        return True  # its work is done once, however often the cell begins; the kernel knows whether it has it
    saved = workload.checkpoint
    return begins_with is not None and saved is not None and saved.id == begins_with and cell.runs < MAX_RUNS


def cut_for_another(workload: Workload, preemptions: int) -> bool:
    """Whether a session that had had so many preemptions has lost its kernel by one more."""
    return workload.preemptions > preemptions and workload.state in MOVING


def wanted_in(reply: Mapping[str, Any]) -> bool:
    """Whether a kernel says in the reply to a cell that all cells of its session are to run again."""
    told = reply.get("gpufair")
    return isinstance(told, dict) and told.get("rerun") is True


def begins_with(reply: Mapping[str, Any]) -> str | None:
    """The checkpoint from which a cell that was cut can run again, if its kernel says so in its reply."""
    told = reply.get("gpufair")
    found = told.get("from") if isinstance(told, dict) else None
    return found if isinstance(found, str) else None


def asks(reply: Mapping[str, Any], for_what: str) -> bool:
    """Whether a kernel asks in the reply to a cell to ``move`` its session to a CPU node, or to ``park`` it."""
    told = reply.get("gpufair")
    return isinstance(told, dict) and told.get(for_what) is True


def goes_on(workload: Workload) -> bool:
    """Whether a session whose kernel was replaced, or is gone, has another one by itself: it was not parked by its user."""
    return workload.state in {*MOVING, "running"} and (workload.state != "parked" or workload.on_cpu)


def leaves(workload: Workload, *, asked: bool) -> bool:
    """Whether a session that runs is on its way to a CPU node: that was wished, or is being ``asked`` for."""
    return asked or moves(workload)


def why_not(cell: Cell, *, moved: bool, switched: bool) -> str:
    """What to add to the error of a cell that was cut and is not sent again; empty if nobody had asked for that.

    Args:
        moved: A preemption cut it.
        switched: All cells of its session are to run again.
    """
    if not (switched or tagged(cell.metadata)) or cell.header.get("subshell_id"):
        return ""
    if cell.runs >= MAX_RUNS:
        why = f"it was cut {cell.runs + 1} times"
    elif not moved:
        why = "that is for preemptions only"
    elif cell.late is None:
        why = "it did not stop when it was interrupted"
    else:
        why = "the session does not go back to the moment before it"
    return f"It is not run again by itself: {why}."
