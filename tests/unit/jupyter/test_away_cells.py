"""The gate and cells that wait in the CPU pool while their session moves: where they go on, and where not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufair.client import Refused
from gpufair.client.types import CheckpointView, MoveView
from jupyter_gpufair import kernel_line
from jupyter_gpufair.offer import AWAY
from tests.unit.jupyter.gate_world import World

SAVED = CheckpointView("000002-1", 2, at_s=1000.0, size_bytes=5, duration_s=0.5)
LEFT = {"status": "error", "ename": "Preempted", "evalue": "it goes on in the pool"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_line, "AWAKE_S", 0.05)


class Asked:
    """What the gate asks the service for, in the place of ``FakeSession.ask``."""

    def __init__(self, world: World, refusal: Exception | None = None) -> None:
        self.verbs: list[str] = []
        self._world, self._refusal = world, refusal
        world.session.ask = self.ask  # type: ignore[method-assign,assignment]

    async def ask(self, verb: Any) -> list[dict[str, Any]]:
        # In the io thread; what it changes here is told to the gate by the test, in the gate's own thread.
        if verb.__name__ == "open_on_cpu" and self._refusal is None:
            self._world.session.workload = replace(self._world.session.workload, move=MoveView(1000.0))
        self.verbs.append(verb.__name__)
        if self._refusal is not None:
            raise self._refusal
        return []


async def left(world: World, count: int = 2, *, move: bool = True) -> list[str]:
    """Cells of which the first has left its kernel."""
    ids = [world.cell() for _ in range(count)]
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == ids[:1])
    world.answer(ids[0], **LEFT, gpufair={"rerun": False, "from": AWAY, "move": move})
    return ids


def offered(world: World) -> dict[str, Any]:
    parts = [parts for shell in world.km.shells() for parts in shell.sent]
    found: dict[str, Any] = [json.loads(part[4])["gpufair"] for part in parts if b"gpufair" in part[4]][-1]
    return found


async def test_it_follows_its_session_to_a_cpu_node_and_the_next_cell_waits_for_gpus() -> None:
    world = World()
    asked = Asked(world)
    first, second = await left(world)
    await world.until(lambda: asked.verbs == ["open_on_cpu"])
    world.session.becomes("running", (1, 1), busy=False)
    assert (world.sent(), world.client.got) == ([first], []), "it waits for the move, and the next one for it"
    world.session.becomes("parked", None, move=None, on_cpu=True, checkpoint=SAVED)
    await world.until(lambda: world.gate.held == 2)
    assert world.session.resumed == 0
    world.session.becomes("running", (1, 2))
    await world.until(lambda: world.sent() == [first, first])
    assert (offered(world)["from"], offered(world)["again"]) == (AWAY, True)
    world.answer(first, gpufair={"rerun": False, "park": True})
    await world.until(lambda: asked.verbs[-1] == "park")
    assert world.sent() == [first, first], "the next one is not for this kernel"
    world.session.becomes("parked", None, on_cpu=False)
    await world.until(lambda: world.session.resumed == 1)
    world.session.becomes("running", (2, 1))
    await world.until(lambda: world.sent() == [first, first, second])
    world.gate.close(keep=False)


@pytest.mark.parametrize("case", ["refused", "not saved"])
async def test_it_goes_on_where_it_is_if_its_session_stays(case: str) -> None:
    world = World()
    asked = Asked(world, Refused(409, "WrongPhase", "it has no GPUs") if case == "refused" else None)
    first, second = await left(world)
    if case == "not saved":
        await world.until(lambda: asked.verbs == ["open_on_cpu"])
        world.session.becomes("running", (1, 1), move=MoveView(1000.0, failed="gen cannot be saved"))
    await world.until(lambda: world.sent() == [first, first])
    assert offered(world)["from"] == AWAY
    world.answer(first, gpufair={"rerun": False})
    await world.until(lambda: world.sent() == [first, first, second])
    world.gate.close(keep=False)


@pytest.mark.parametrize("case", ["preempted", "parked by hand", "died", "interrupted"])
async def test_a_preemption_takes_it_along_and_its_user_ends_it(case: str) -> None:
    world = World()
    first, second = await left(world, move=False)
    world.session.becomes("checkpointing", (1, 1))
    if case == "preempted":
        world.session.becomes("queued", None, preemptions=1, checkpoint=SAVED)
        await world.until(lambda: world.gate.held == 2)
        world.session.becomes("running", (2, 1))
        await world.until(lambda: world.sent() == [first, first])
    else:
        if case == "interrupted":
            world.gate.withdraw()
            assert world.client.replies() == [(first, {"status": "aborted"}), (second, {"status": "aborted"})]
        elif case == "parked by hand":
            world.session.becomes("parked", None, checkpoint=SAVED)
        else:
            world.session.kernel_died = True
            world.session.becomes("running", None)
        assert world.gate.held == 0
        assert first in world.gate.kept.notes
        assert world.session.resumed == 0
    world.gate.close(keep=False)
