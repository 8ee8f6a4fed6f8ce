"""What is known of cells that ran: the supervisor's record, completed by what only this server could say.

An execution is as ``gpufair.node.record`` has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpufair.client import AsyncClient, Workload
from jupyter_gpufair import messages
from jupyter_gpufair.cell import Cell
from jupyter_gpufair.held_file import HeldFile, held_folder
from jupyter_gpufair.session import Session

Execution = dict[str, Any]

MAX_EARLIER = 3  # sessions of a document that ended one after the other, with nobody to save it in between


async def executions_of(session: Session, notes: Mapping[str, Execution]) -> list[Execution]:
    """All that is to be shown under the cells of a session's document, oldest first. Runs in the io thread.

    Raises: GpufairError: The service cannot be asked.
    """
    found: list[Execution] = []
    for workload, saved_s in await _unseen(session):
        runs = await session.ask(partial(_outputs_of, workload.id))
        kept = await asyncio.to_thread(_notes_of, workload.id)
        over_s = workload.ended_s or 0.0
        found += [run for run in completed(runs, kept) if (run.get("ended_s") or over_s) > saved_s]
    return [*found, *completed(await session.ask(AsyncClient.outputs), notes)]


async def _unseen(session: Session) -> list[tuple[Workload, float]]:
    """Sessions of the same document that ended after it was last saved, and when that was."""
    notebook = session.workload.notebook if session.workload is not None else ""
    try:
        saved_s = (await asyncio.to_thread(Path(notebook).stat)).st_mtime if notebook else 0.0
    except OSError:
        return []  # no file of this machine: nobody knows what its reader has seen
    if not notebook:
        return []
    ended = await session.ask(lambda client, _: client.workloads("ended", notebook=notebook))
    late = [(one, saved_s) for one in ended if (one.ended_s or 0.0) > saved_s and one.id != session.kernel_id]
    return sorted(late, key=lambda entry: entry[0].ended_s or 0.0)[-MAX_EARLIER:]


async def _outputs_of(workload: str, client: AsyncClient, _kernel_id: str) -> list[Execution]:
    return await client.outputs(workload)


def _notes_of(kernel_id: str) -> dict[str, Execution]:
    file = HeldFile(held_folder(), kernel_id)
    file.close(forget=False)
    return file.notes


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
        elif execution.get("status") == "interrupted" and execution.get("again_from") is None:
            more = [{"output_type": "error", **messages.error(messages.CUT, messages.CUT_TEXT)}]
        found.append({**execution, "outputs": [*execution["outputs"], *more]})
    for note in notes.values():
        if note["msg_id"] not in told:
            later = (i for i, run in enumerate(found) if (run.get("started_s") or run.get("ended_s") or 0.0) > note["ended_s"])
            found.insert(next(later, len(found)), note)
    return found
