"""A session that is to be moved: it stands still with all of it saved, or it goes on as if nothing had been asked."""

import time

from tests.integration.node.rig import until


def _serving(rig, incarnation=1):
    return rig.service.wait("w", "serving", 1, incarnation=incarnation).body


def _cell(rig, connection, code):
    return rig.client(connection).execute_interactive(code, timeout=60, output_hook=lambda _: None)["content"]["status"]


def _hold(rig, wait_s=30.0, hold_s=30.0):
    rig.service.command("hold", "w", wait_s=wait_s, hold_s=hold_s)


def test_it_waits_for_the_cell_stands_still_and_leaves_at_once_with_all_it_has(rig):
    """One checkpoint: the cell that came after it has not begun, so nothing is missing when the notice comes."""
    rig.start("w", gpus=1)
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "import time\nx = [1]") == "ok"
    rig.run(connection, "time.sleep(1.5); x.append(2)")
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [True], 60, what="a cell runs")
    _hold(rig)
    held = rig.service.wait("w", "held", timeout_s=60).body
    assert 0 < held["until_s"] - time.time() <= 30
    rig.run(connection, "x.append(3)")
    rig.preempt("w", in_s=60)
    assert rig.service.wait("w", "released", timeout_s=60).body == {"busy": False}
    (point,) = [r.body for r in rig.service.of("w", "checkpointed")]
    assert (point["sequence"], point["lost"]) == (1, [])
    rig.start("w", incarnation=2, restore=point["id"], next_sequence=2)
    assert rig.ask(_serving(rig, 2)["connection"], "x") == "[1, 2]"


def test_what_cannot_be_saved_keeps_it_where_it_is(rig):
    """It is named, and the kernel does not stand still for it; the next try goes well."""
    rig.start("w")
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 1\ngen = (i for i in 'ab')") == "ok"
    _hold(rig, hold_s=60.0)
    reason = rig.service.wait("w", "not_held", timeout_s=60).body["reason"]
    assert reason.startswith("gen (")
    assert "delete that, or park it" in reason
    begun = time.monotonic()
    assert _cell(rig, connection, "next(gen)\ndel gen") == "ok"
    assert time.monotonic() - begun < 30, "it was let go on at once"
    _hold(rig)
    rig.service.wait("w", "held", timeout_s=60)


def test_a_cell_that_does_not_end_is_not_interrupted(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    rig.run(connection, "import time\nfor _ in range(30):\n    time.sleep(0.1)\nx = 'whole'")
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [True], 60, what="a cell runs")
    _hold(rig, wait_s=0.5)
    assert "a cell ran for longer than 0.5 s" in rig.service.wait("w", "not_held", timeout_s=60).body["reason"]
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [False], 60, what="it has ended")
    assert rig.ask(connection, "x") == "'whole'"


def test_a_save_that_fails_keeps_it_where_it_is(rig):
    """It says why, and goes on; once there is room again it can be held."""
    rig.root.joinpath("checkpoints").mkdir()
    blocked = rig.root / "checkpoints" / "w"
    blocked.write_text("no folder")
    rig.start("w")
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 1") == "ok"
    _hold(rig)
    assert rig.service.wait("w", "not_held", timeout_s=60).body["reason"]
    assert _cell(rig, connection, "x += 1") == "ok"
    assert not rig.service.of("w", "checkpointed")
    blocked.unlink()
    _hold(rig)
    rig.service.wait("w", "held", timeout_s=60)
