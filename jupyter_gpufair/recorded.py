"""What is known of cells that ran: the supervisor's record, completed by what only this server could say.

An execution is as ``gpufair.node.record`` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpufair import messages
from jupyter_gpufair.cell import Cell

Execution = dict[str, Any]


def note_of(cell: Cell, error: Mapping[str, Any], at_s: float) -> Execution:
    """What a user must be told of a cell, as an execution that consists of one error."""
    return {
        "msg_id": cell.msg_id,
        "cell_id": cell.cell_id,
        "code_sha256": None,
        "execution_count": None,
        "state": "done",
        "status": "error",
        "started_s": None,
        "ended_s": at_s,
        "outputs": [{"output_type": "error", **error}],
    }


def completed(executions: Sequence[Execution], notes: Mapping[str, Execution]) -> list[Execution]:
    """The record with the notes in their places: behind what the cell had put out, or, if it never ran, by the time."""
    found = []
    told = set()
    for execution in executions:
        more: Sequence[Execution] = ()
        if (note := notes.get(execution["msg_id"])) is not None:
            told.add(note["msg_id"])
            more = note["outputs"]
        elif execution.get("status") == "interrupted":
            more = [{"output_type": "error", **messages.error(messages.CUT, messages.CUT_TEXT)}]
        found.append({**execution, "outputs": [*execution["outputs"], *more]})
    for note in notes.values():
        if note["msg_id"] not in told:
            later = (i for i, run in enumerate(found) if (run.get("started_s") or run.get("ended_s") or 0.0) > note["ended_s"])
            found.insert(next(later, len(found)), note)
    return found
