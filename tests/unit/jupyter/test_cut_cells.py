"""The gate and cells that are to run again: put back at the head, from the right checkpoint only, and not for ever."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpufair.client.types import CheckpointView
from jupyter_gpufair import again, kernel_line
from tests.unit.jupyter.gate_world import World

BEFORE = CheckpointView("000001-1", 1, at_s=1000.0, size_bytes=5, duration_s=0.5)
INSIDE = replace(BEFORE, id="000002-1", sequence=2)
CUT = {"status": "error", "ename": "Preempted", "evalue": "make room"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_line, "AWAKE_S", 0.05)


async def running(world: World, count: int) -> list[str]:
    """So many cells, of which the first runs."""
    ids = [world.cell() for _ in range(count)]
    world.session.becomes("running", (1, 1), checkpoint=BEFORE)
    await world.until(lambda: world.sent() == ids[:1])
    return ids


def cut(world: World, cell: str, *, begins_with: str | None = BEFORE.id, preemptions: int = 1, **more: object) -> None:
    """The kernel answers that it was interrupted for a preemption, and goes away."""
    world.session.becomes("checkpointing", world.session.attached)
    world.answer(cell, **CUT, gpufair={"rerun": True, "from": begins_with})
    world.session.becomes("queued", None, preemptions=preemptions, **more)


def offers(world: World) -> list[dict[str, object]]:
    """What was said to the kernels with each cell."""
    parts = [parts for shell in world.km.shells() for parts in shell.sent]
    return [found for part in parts if (found := json.loads(part[4]).get("gpufair"))]


async def test_it_runs_again_before_those_that_wait() -> None:
    world = World()
    first, second = await running(world, 2)
    cut(world, first)
    assert world.client.replies() == []
    assert world.client.got == []
    await world.until(lambda: world.gate.held == 2)
    assert [(cell["msg_id"], cell["state"]) for cell in world.gate.cells()] == [(first, "held"), (second, "held")]
    world.session.becomes("running", (2, 1))
    await world.until(lambda: world.sent() == [first, first])
    assert offers(world)[0] == {"again": True}
    assert (offers(world)[1]["from"], "run 2" in str(offers(world)[1]["text"])) == (BEFORE.id, True)
    world.answer(first, gpufair={"rerun": True})
    await world.until(lambda: world.sent() == [first, first, second])
    assert len(world.client.got) == 1
    world.gate.close(keep=False)


@pytest.mark.parametrize("case", ["saved inside", "nothing before", "parked by hand", "lost meanwhile", "malformed"])
async def test_it_does_not(case: str) -> None:
    """The user reads why, and what was meant to follow is not run."""
    world = World()
    first, second = await running(world, 2)
    cut(
        world,
        first,
        begins_with={"saved inside": None, "nothing before": None, "malformed": 5}.get(case, BEFORE.id),  # type: ignore[arg-type]
        preemptions=0 if case == "parked by hand" else 1,
        checkpoint=None if case == "lost meanwhile" else INSIDE if case == "saved inside" else BEFORE,
    )
    assert "not run again by itself" in next(c["evalue"] for _, kind, c, _ in world.client.said if kind == "error")
    assert [msg_id for _, parts in world.client.got for msg_id in [json.loads(parts[3])["msg_id"]]] == [first]
    assert world.client.replies() == [(second, {"status": "aborted"})]
    assert world.gate.held == 0
    world.gate.close(keep=False)


async def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MAX_RUNS", 2)
    world = World()
    [cell] = await running(world, 1)
    for time in (1, 2):
        cut(world, cell, preemptions=time)
        world.session.becomes("running", (1 + time, 1))
        await world.until(lambda time=time: world.sent() == [cell] * (1 + time))
    assert [offer["again"] for offer in offers(world)] == [True, True, False]
    world.session.becomes("checkpointing", world.session.attached)
    world.answer(cell, **CUT, gpufair={"rerun": True})
    world.session.becomes("queued", None, preemptions=3, checkpoint=INSIDE)
    errors = [c["evalue"] for _, kind, c, _ in world.client.said if kind == "error"]
    assert len(errors) == 1
    assert "cut 3 times" in errors[0]
    assert world.gate.held == 0
    world.gate.close(keep=False)


async def test_a_preemption_that_is_called_off() -> None:
    """It was interrupted all the same: its answer is handed on, and nothing that followed runs."""
    world = World()
    first, second = await running(world, 2)
    world.session.becomes("checkpointing", world.session.attached)
    world.answer(first, **CUT, gpufair={"rerun": True, "from": BEFORE.id})
    world.session.becomes("running", (1, 1))
    assert len(world.client.got) == 1
    assert world.client.replies() == [(second, {"status": "aborted"})]
    world.gate.close(keep=False)


async def test_an_interrupt_by_the_user_ends_the_waiting() -> None:
    world = World()
    [cell] = await running(world, 1)
    cut(world, cell)
    await world.until(lambda: world.gate.held == 1)
    world.gate.withdraw()
    assert world.client.replies() == [(cell, {"status": "aborted"})]
    assert cell in world.gate.kept.notes
    world.gate.close(keep=False)


@pytest.mark.parametrize("told", [True, False])
async def test_the_server_is_killed(told: bool) -> None:
    """After it put the cell back, or (``told`` False) before it knew: the record has what the kernel said of it."""
    world = World()
    first, second = await running(world, 2)
    if told:
        cut(world, first)
        await world.until(lambda: world.gate.held == 2)
    world.gate.close(keep=True)
    world = World()
    assert world.gate.held == 2
    run = {"msg_id": first, "status": "interrupted", "state": "done", "again_from": BEFORE.id}
    world.session.record = [run]
    world.session.becomes("queued", None, preemptions=1, checkpoint=BEFORE)
    await world.until(lambda: not world.gate._doubt)
    assert world.gate.held == 2
    world.session.becomes("running", (2, 1))
    await world.until(lambda: world.sent() == [first])
    assert offers(world)[-1]["from"] == BEFORE.id
    assert world.gate.cells()[1]["msg_id"] == second
    world.gate.close(keep=False)
