"""Preemption of cells that do not simply end: the grace, the interrupt, the safe point, the fall-back, and what is said."""

import random
import time

import pytest

from tests.integration.node.rig import until

GRACE_S = 4.0


def _serving(rig, workload="w", count=1, incarnation=1):
    return rig.service.wait(workload, "serving", count, incarnation=incarnation).body


def _cell(rig, connection, code):
    return rig.client(connection).execute_interactive(code, timeout=30, output_hook=lambda _: None)["content"]["status"]


def _busy(rig, workload="w"):
    until(lambda: [r.body["busy"] for r in rig.service.of(workload, "activity")][-1:] == [True], what="a cell runs")


def _again(rig, sequence=9):
    rig.start("w", incarnation=2, restore=rig.service.of("w", "checkpointed")[-1].body["id"], next_sequence=sequence)
    return _serving(rig, incarnation=2)["connection"]


STUBBORN = {
    "ignores the interrupt": "import time\nx = 'after'\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass",
    "holds the interpreter": "import time\nx = 'after'\ntime.sleep(0.3)\nn = sum(range(10**11))",
}


@pytest.mark.parametrize("how", STUBBORN)
def test_a_cell_that_cannot_be_stopped_costs_what_was_done_since_the_last_checkpoint_and_that_is_said(rig, how):
    """At the deadline, not before and not much later, and each cell that no checkpoint holds is named."""
    rig.start("w")
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 'before'") == "ok"
    rig.service.command("save", "w")
    rig.service.wait("w", "checkpointed")
    assert _cell(rig, connection, "\n# a comment\ny = 1") == "ok"
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [False], what="no cell runs")
    rig.run(connection, STUBBORN[how])
    _busy(rig)
    begun = time.monotonic()
    rig.preempt("w", in_s=GRACE_S)
    released = rig.service.wait("w", "released", timeout_s=20).body
    assert GRACE_S - 0.1 < time.monotonic() - begun < GRACE_S + 4
    assert released["busy"] is True
    assert [cell for cell, _ in released["unsaved"]] == ["cell [2]", "cell [3]"]
    assert "the session goes back to its state of" in released["unsaved"][0][1]
    assert "It began with: # a comment" in released["unsaved"][0][1]
    connection = _again(rig)
    assert rig.ask(connection, "[x, 'y' in globals()]") == "['before', False]"


ENDING = {
    "top-level await": "import asyncio\nn = 1\nawait asyncio.sleep(60)\nn = 2",
    "a subshell": None,
    "threads": "import threading, time\nn = 1\nstop = False\ndef work():\n    while not stop: time.sleep(0.01)\n"
    "threading.Thread(target=work).start()\nwhile True: time.sleep(0.01)",
    "asks for input": "n = 1\ninput('name? ')",
}


@pytest.mark.parametrize("how", ENDING)
def test_a_cell_of_any_kind_is_interrupted_and_saved(rig, how):
    rig.start("w")
    connection = _serving(rig)["connection"]
    client = rig.client(connection)
    if (code := ENDING[how]) is not None:
        client.execute(code)
    else:
        assert _cell(rig, connection, "import threading; leave = threading.Event()") == "ok"
        message = client.session.msg("create_subshell_request", {})
        client.control_channel.send(message)
        subshell = client.get_control_msg(timeout=20)["content"]["subshell_id"]
        cell = client.session.msg(
            "execute_request", {"code": "n = 1\nleave.wait(2)", "silent": False, "store_history": False}
        )
        cell["header"]["subshell_id"] = subshell
        client.shell_channel.send(cell)
    _busy(rig)
    time.sleep(0.2)
    rig.preempt("w", in_s=GRACE_S)
    released = rig.service.wait("w", "released", timeout_s=20).body
    assert "unsaved" not in released, released
    assert rig.service.kinds("w")[-2:] == ["checkpointed", "released"], rig.service.kinds("w")
    assert rig.ask(_again(rig), "n") == "1"


def test_a_loop_is_left_at_its_safe_point_without_an_interrupt(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    loop = "import gpufair, time\nfor i in gpufair.resumable(range(20)):\n    time.sleep(0.1)\n    seen.append(i)"
    assert _cell(rig, connection, "seen = []") == "ok"
    rig.run(connection, loop)
    _busy(rig)
    begun = time.monotonic()
    rig.preempt("w", in_s=30)
    assert rig.service.wait("w", "released", timeout_s=10).body == {"busy": True}
    assert time.monotonic() - begun < 3
    assert not rig.service.of("w", "checkpoint_failed")
    connection = _again(rig)
    assert 0 < int(rig.ask(connection, "len(seen)")) < 20
    assert _cell(rig, connection, loop) == "ok"
    assert rig.ask(connection, "seen == list(range(20))") == "True"


def test_what_a_cell_did_is_saved_after_it_and_in_the_midst_of_a_long_loop(rig):
    """Nobody asks for it: the supervisor is killed, and what was done before a moment ago is back."""
    rig.start("w", autosave_share=0.5)
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 1; seen = []") == "ok"
    first = rig.service.wait("w", "checkpointed").body
    rig.run(
        connection,
        "import gpufair, time\nfor i in gpufair.resumable(range(10**6), 'long'):\n    time.sleep(0.01)\n    seen.append(i)",
    )
    later = until(lambda: rig.service.of("w", "checkpointed")[3:], what="several checkpoints inside the loop")[0].body
    assert later["sequence"] > first["sequence"]
    assert rig.service.of("w", "activity")[-1].body["busy"] is True
    rig.service.command("stop", "w")
    rig.service.wait("w", "released")
    count = int(rig.ask(_again(rig, 1000), "len(seen)"))
    assert count > 0
    reports = [report.kind for report in rig.service.of("w", "checkpoint_failed")]
    assert reports == []


def test_a_seed_that_assigns_nothing_is_saved_as_well(rig):
    rig.start("w", autosave_share=0.5)
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "import random") == "ok"
    before = len(until(lambda: rig.service.of("w", "checkpointed"), what="a checkpoint"))
    assert _cell(rig, connection, "random.seed(7)") == "ok"
    until(lambda: rig.service.of("w", "checkpointed")[before:], what="another checkpoint")
    rig.service.command("stop", "w")
    rig.service.wait("w", "released")
    assert rig.ask(_again(rig, 1000), "random.random()") == str(random.Random(7).random())


def test_a_preemption_during_a_checkpoint_that_nobody_asked_for(rig):
    rig.start("w", autosave_share=1.0)
    connection = _serving(rig)["connection"]
    slow = "import time\nclass Slow:\n    def __getstate__(self):\n        time.sleep(0.15)\n        return {}\nall = [Slow() for _ in range(6)]"
    assert _cell(rig, connection, slow) == "ok"
    time.sleep(0.8)
    rig.run(connection, "x = 1\nimport time; time.sleep(0.2); x = 2")
    rig.preempt("w", in_s=20)
    assert "unsaved" not in rig.service.wait("w", "released", timeout_s=15).body
    assert rig.ask(_again(rig, 1000), "globals().get('x', 2)") == "2", "between cells, not inside one"


def test_a_restore_says_how_far_it_has_come(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    slow = (
        "import time\nclass Slow:\n    def __getstate__(self): return {'a': 1}\n"
        "    def __setstate__(self, state): time.sleep(0.5)\na, b, c, d = Slow(), Slow(), Slow(), Slow()"
    )
    assert _cell(rig, connection, slow) == "ok"
    rig.preempt("w", in_s=20)
    rig.service.wait("w", "released")
    _again(rig)
    told = [report.body for report in rig.service.of("w", "progress", 2)]
    assert {one["step"] for one in told} == {"restoring"}
    fractions = [one["fraction"] for one in told]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert len({one for one in fractions if 0.7 < one < 1}) >= 2, fractions
