"""The gate against a kernel of a few lines: bounds, and moves at awkward moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.client.types import CheckpointView
from jupyter_gpufair import held, kernel_line
from tests.unit.jupyter.gate_world import Client, World


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))


async def test_one_cell_at_a_time() -> None:
    """What waits in the kernel's own queue is lost with the kernel."""
    world = World()
    ids = [world.cell() for _ in range(3)]
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == ids[:1])
    world.answer("m1")
    assert world.sent() == ids[:2]
    world.session.becomes("checkpointing", (1, 1))
    world.answer("m2")
    assert world.sent() == ids[:2]
    await world.until(lambda: world.gate.held == 1)
    world.gate.close(keep=False)


async def test_a_kernel_replaced_while_it_is_greeted() -> None:
    """The gate must open for the one that came after, and send it nothing twice."""
    world = World()
    world.client.hears = False
    cell = world.cell()
    world.session.becomes("running", (1, 1))
    await world.until(world.km.shells)
    world.session.becomes("running", None)
    world.session.becomes("running", (1, 2))
    await world.until(lambda: len(world.km.shells()) == 2)
    assert world.km.shells()[0].over
    assert world.sent() == []
    world.client.hears = True
    await world.until(lambda: world.sent() == [cell])
    assert len(world.km.shells()[1].sent) == 1
    world.gate.close(keep=False)


async def test_a_deaf_client_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_line, "AWAKE_S", 0.1)
    world = World()
    world.client.hears = False
    cell = world.cell()
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == [cell])
    world.gate.close(keep=False)


async def test_a_newcomer_hears_the_output_of_its_first_cell() -> None:
    """Its subscription may reach the kernel after its cell, and what the kernel says before is lost to it."""
    world = World()
    world.session.becomes("running", (1, 1))
    first = world.cell()
    await world.until(lambda: world.sent() == [first])
    world.answer(first)
    newcomer = Client()
    newcomer.hears = False
    world.gate.join(newcomer)
    second = world.cell()
    await world.until(lambda: world.gate.held == 1)
    assert world.sent() == [first]
    newcomer.hears = True
    await world.until(lambda: world.sent() == [first, second])
    world.gate.close(keep=False)


async def test_a_cut_cell_is_never_sent_again() -> None:
    """What was in a socket when the kernel went must not run on the next one: its author was told that it was cut."""
    world = World()
    cell = world.cell()
    behind = world.cell()
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == [cell])
    world.session.becomes("parked", None, preemptions=1)
    assert [(msg_id, content["status"]) for msg_id, content in world.client.replies()] == [
        (cell, "error"),
        (behind, "aborted"),
    ]
    assert world.km.shells()[0].over
    assert world.km.execution_state == "idle"
    world.session.becomes("running", (2, 1))
    again = world.cell()
    await world.until(lambda: world.sent() == [cell, again])
    world.gate.close(keep=False)


SAVED = CheckpointView("000001-1", 1, at_s=1000.0, size_bytes=5, duration_s=0.5)


async def test_a_cell_that_never_began_is_sent_to_the_next_kernel() -> None:
    """It reached a kernel that was being saved and began nothing more: nobody lost anything, so nobody is told."""
    world = World()
    ids = [world.cell() for _ in range(2)]
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == ids[:1])
    world.session.becomes("checkpointing", (1, 1))
    world.session.becomes("stopping", None, preemptions=1, checkpoint=SAVED)
    world.session.becomes("queued", None)
    assert world.client.replies() == []
    await world.until(lambda: world.gate.held == 2)
    world.session.becomes("running", (2, 1))
    await world.until(lambda: world.sent() == [ids[0], ids[0]])
    world.answer(ids[0])
    await world.until(lambda: world.sent() == [ids[0], *ids])
    world.gate.close(keep=False)


@pytest.mark.parametrize("case", ["it began", "not saved", "saved before", "parked by hand", "died"])
async def test_a_cell_that_may_have_begun_is_not(case: str) -> None:
    """Twice is worse than not at all."""
    world = World()
    cell = world.cell()
    old = SAVED if case == "saved before" else None
    world.session.becomes("running", (1, 1), checkpoint=old)
    await world.until(lambda: world.sent() == [cell])
    assert world.gate.listening
    if case == "it began":
        world.gate.heard(cell)
        assert not world.gate.listening
    world.session.kernel_died = case == "died"
    world.session.becomes(
        "running" if case == "died" else "parked",
        None,
        preemptions=0 if case == "parked by hand" else 1,
        checkpoint=None if case == "not saved" else SAVED,
    )
    assert [(msg_id, content["status"]) for msg_id, content in world.client.replies()] == [(cell, "error")]
    assert world.gate.held == 0
    world.gate.close(keep=False)


async def test_the_last_idle_is_said_for_a_kernel_that_went_away() -> None:
    """A client waits for reply and idle; the second may be lost with the kernel, and its cell would stay [*]."""
    world = World()
    cell = world.cell()
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == [cell])
    world.answer(cell)
    assert len(world.client.got) == 1
    world.session.becomes("parked", None)
    assert ("iopub", "status", {"execution_state": "idle"}, cell) in world.client.said
    world.gate.close(keep=False)


async def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may not fill the server's memory; what is too much is refused with a reason, what waits is kept."""
    monkeypatch.setattr(held, "MAX_CELLS", 3)
    monkeypatch.setattr(held, "MAX_BYTES", 2000)
    world = World()
    for _ in range(3):
        world.cell()
    refused = world.cell()
    assert world.client.replies()[-1][0] == refused
    assert world.client.replies()[-1][1]["ename"] == "TooManyCells"
    world.gate.withdraw()
    assert world.gate.held == 0
    big = world.cell("x" * 3000)
    assert world.client.replies()[-1][0] == big
    assert world.gate.held == 0
    world.gate.close(keep=False)


async def test_subshells_go_beside_the_main_one() -> None:
    """They exist to run while the main shell is busy."""
    world = World()
    first = world.cell()
    world.session.becomes("running", (1, 1))
    await world.until(lambda: world.sent() == [first])
    header = {"msg_id": "sub", "msg_type": "execute_request", "session": "client", "subshell_id": "s"}
    pack = world.km.session.pack
    world.gate.submit(world.client, [pack(header), b"{}", b"{}", pack({"code": "1"})])
    assert world.sent() == [first, "sub"]
    world.gate.close(keep=False)
