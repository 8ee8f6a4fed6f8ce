"""What waits outlives the server, and runs exactly once whenever the server dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpufair import recovery
from jupyter_gpufair.held_file import held_folder
from jupyter_gpufair.recorded import completed
from tests.unit.jupyter.gate_world import World


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))


def run(msg_id: str, status: str = "ok") -> dict[str, Any]:
    return {"msg_id": msg_id, "status": status, "state": "done", "started_s": 1.0, "ended_s": 2.0, "outputs": []}


async def dead_server(*, began: int = 0, state: str = "queued") -> list[str]:
    """A server that held three cells, sent as many as ``began``, and died without an answer. The cells' ids."""
    world = World(state)
    ids = [world.cell(f"print({i})") for i in range(3)]
    await world.until(lambda: world.gate.held == 3)
    if began:
        world.session.becomes("running", (1, 1))
        await world.until(lambda: world.sent() == ids[:1])
        for msg_id in ids[: began - 1]:
            world.answer(msg_id)
    assert world.sent() == ids[:began]
    world.gate.close(keep=True)
    return ids


async def test_a_queued_session_gets_its_cells_in_order() -> None:
    """Nobody looks, no page is there: the next server sends what waited."""
    ids = await dead_server()
    world = World()
    world.gate.leave(world.client)
    assert world.gate.held == 3
    world.session.becomes("running", (1, 1))
    await world.answer_questions()
    for count in (1, 2, 3):
        await world.until(lambda count=count: world.sent() == ids[:count])
        world.answer(ids[count - 1])
    assert world.gate.held == 0
    world.gate.close(keep=True)
    assert World().gate.held == 0


@pytest.mark.parametrize("began", [False, True])
async def test_sent_and_not_marked(began: bool) -> None:
    """The server died between sending and answer: whether the cell began is in the record, not in our file."""
    ids = await dead_server(began=1)
    world = World("running")
    if began:
        world.session.record.append(run(ids[0]))
    world.session.becomes("running", (1, 1))
    # The kernel answers only after what it runs; until then nothing may be sent.
    await world.until(lambda: len(world.requests()) == 1)
    assert world.sent() == []
    await world.answer_questions()
    await world.until(lambda: world.sent() == ids[1:2] if began else world.sent() == ids[:1])
    world.gate.close(keep=False)


async def test_a_kernel_replaced_meanwhile_is_asked_again() -> None:
    """An answer for one kernel says nothing of the next."""
    ids = await dead_server(began=1)
    world = World("running")
    world.session.becomes("running", (1, 1))
    await world.until(lambda: len(world.requests()) == 1)
    world.session.becomes("queued")
    world.session.record.append(run(ids[0], "ok"))
    await world.until(lambda: world.gate.held == 2)
    world.session.becomes("running", (2, 1))
    await world.until(lambda: world.sent() == ids[1:2])
    world.gate.close(keep=False)


@pytest.mark.parametrize("status", ["error", "interrupted"])
async def test_cells_behind_one_that_failed_are_not_run(status: str) -> None:
    """As in a kernel's own queue; and who finds them not run in the morning reads why."""
    ids = await dead_server(began=2)
    world = World("parked")
    world.gate.leave(world.client)
    world.session.record += [run(ids[0]), run(ids[1], status)]
    await world.until(lambda: world.gate.held == 0)
    assert world.session.resumed == 0
    found = completed(world.session.record, world.gate.kept.notes)
    assert [one["msg_id"] for one in found] == ids
    assert [output["ename"] for output in found[2]["outputs"]] == ["NotRun"]
    assert [output["ename"] for output in found[1]["outputs"]] == (["CellCut"] if status == "interrupted" else [])
    world.gate.close(keep=False)


async def test_a_parked_session_is_resumed_for_what_waits_only() -> None:
    """All has run: no GPU is asked for."""
    ids = await dead_server(began=2)
    world = World("parked")
    world.session.record += [run(ids[0]), run(ids[1])]
    await world.until(lambda: world.session.resumed == 1)
    assert [cell["msg_id"] for cell in world.gate.cells()] == ids[2:]
    world.gate.close(keep=True)

    world = World("parked")
    world.session.record += [run(msg_id) for msg_id in ids]
    await world.until(lambda: world.gate.held == 0)
    assert world.session.resumed == 0
    world.gate.close(keep=False)


async def test_nobody_knows_whether_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice is worse than not at all; its author is told."""
    monkeypatch.setattr(recovery, "RECORD_S", 0.2)
    ids = await dead_server(began=1)
    world = World("running")
    world.session.becomes("running", (1, 1))
    await world.answer_questions(recorded=False)
    await world.until(lambda: world.gate.held == 0)
    assert world.sent() == []
    names = [output["ename"] for note in world.gate.kept.notes.values() for output in note["outputs"]]
    assert names == ["OutcomeUnknown"]
    assert [(msg_id, content["status"]) for msg_id, content in world.client.replies()] == [
        (ids[1], "aborted"), (ids[2], "aborted"), (ids[0], "error"),
    ]  # fmt: skip
    world.gate.close(keep=False)


async def test_a_cell_that_others_wait_for_is_kept_with_them() -> None:
    """The first of "Run All" went straight to the kernel. Should it fail unseen, the rest must not run."""
    world = World()
    world.session.becomes("running", (1, 1))
    first = world.cell()
    await world.until(lambda: world.sent() == [first])
    second = world.cell()
    await world.until(lambda: world.gate.held == 1)
    world.gate.close(keep=True)

    world = World("parked")
    world.session.record.append(run(first, "error"))
    await world.until(lambda: world.gate.held == 0)
    assert [msg_id for msg_id, _ in world.client.replies()] == [second]
    world.gate.close(keep=False)


async def test_what_was_withdrawn_stays_withdrawn() -> None:
    """Interrupt is an answer like any other."""
    world = World()
    world.cell()
    await world.until(lambda: world.gate.held == 1)
    world.gate.withdraw()
    world.gate.close(keep=True)
    assert World().gate.held == 0


async def test_a_note_outlives_the_server() -> None:
    """Why a cell was cut is said once, to whoever looks; it must be there for who comes later."""
    world = World()
    world.session.becomes("running", (1, 1))
    cell = world.cell()
    await world.until(lambda: world.sent() == [cell])
    world.gate.leave(world.client)
    world.session.becomes("parked", None, preemptions=1)
    world.gate.close(keep=True)
    [note] = World().gate.kept.notes.values()
    assert (note["msg_id"], note["outputs"][0]["ename"]) == (cell, "SessionPreempted")
    [found] = completed([run(cell, "interrupted")], {cell: note})
    assert [output["ename"] for output in found["outputs"]] == ["SessionPreempted"]


async def test_nothing_is_acknowledged_that_is_not_on_the_disk(tmp_path: Path) -> None:
    """It waits, and runs if this server lives; but it does not count as held."""
    held_folder().write_text("in the way")
    world = World()
    cell = world.cell()
    assert world.gate.held == 0
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == [cell])
    world.gate.close(keep=False)


async def test_cut_off_at_any_byte() -> None:
    """A crash in the middle of a write costs what was being written, nothing before it."""
    world = World()
    ids = [world.cell("é" * i) for i in range(3)]
    await world.until(lambda: world.gate.held == 3)
    world.gate.withdraw()
    world.gate.close(keep=True)
    [path] = held_folder().iterdir()
    data = path.read_bytes()
    whole = [json.loads(line) for line in data.splitlines()]
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        lines = whole[: data[:size].count(b"\n") + (data[size : size + 1] == b"\n")]
        over = {line["over"] for line in lines if "over" in line}
        expected = [msg_id for msg_id in ids[: sum("held" in line for line in lines)] if msg_id not in over]
        again = World()
        assert [cell["msg_id"] for cell in again.gate.cells()] == expected, size
        again.gate.close(keep=True)
