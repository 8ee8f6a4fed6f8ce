"""Preemption in a real kernel: safe points, loops that go on, functions and hooks of the user's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.integration.kernel.conftest import LIMIT_S, LiveKernel

Start = Callable[[], LiveKernel]
Place = dict[str, Any]
TEXT = "somebody under-served waits"


def _preempted(live: LiveKernel, place: Place, sequence: int = 1, hold_s: float = LIMIT_S) -> dict[str, Any]:
    """Notice and checkpoint, as a supervisor asks for them."""
    live.ask("gpufair_notice_request", text=TEXT, deadline_s=time.time() + 30)
    return live.ask(
        "gpufair_checkpoint_request", id=f"c{sequence}", sequence=sequence, wait_s=30, hold_s=hold_s, **place
    )


def _restored(kernel: Start, place: Place, sequence: int = 1) -> tuple[LiveKernel, dict[str, Any]]:
    live = kernel()
    return live, live.ask("gpufair_restore_request", id=f"c{sequence}", **place)


def _value(live: LiveKernel, expression: str) -> Any:
    reply, printed = live.run(f"import json as _j; print(_j.dumps({expression}))")
    assert reply["status"] == "ok", reply
    return json.loads(printed.splitlines()[-1])


LOOP = """
import gpufair, time
print('running')
for step in gpufair.resumable(range(40)):
    left += 1
    time.sleep(0.05)
    right += 1
    seen.append(step)
print('done')
"""


def test_a_loop_is_left_at_a_safe_point_and_goes_on_there(kernel: Start, place: Place) -> None:
    """Nothing is interrupted, nothing runs twice, nothing is left out; the cell ends in the second process."""
    first = kernel()
    first.run("left = right = 0; seen = []")
    cell = first.client.execute(LOOP)
    first.until_printed("running")
    time.sleep(0.3)  # a few items
    saved = _preempted(first, place)
    assert (saved["status"], saved["lost"], saved["prompt"]) == ("ok", [], 2)
    first.kill()
    second, back = _restored(kernel, place)
    assert back["status"] == "ok", back
    done = _value(second, "[left, right, seen]")
    assert 0 < done[0] == done[1] < 40
    assert done[2] == list(range(done[0]))
    reply, printed = second.run(LOOP)
    assert reply["status"] == "ok", reply
    assert printed == "running\ndone\n"
    assert _value(second, "[left, right, seen == list(range(40))]") == [40, 40, True]
    second.run("left = right = 0; seen = []")
    second.run(LOOP)
    assert _value(second, "[left, right]") == [40, 40], "a loop that has ended begins at the start"
    assert cell


def test_a_preemption_that_is_withdrawn_lets_the_cell_go_on(kernel: Start, place: Place) -> None:
    live = kernel()
    live.run("left = right = 0; seen = []")
    cell = live.client.execute(LOOP)
    live.until_printed("running")
    assert _preempted(live, place)["status"] == "ok"
    before = live.ask("gpufair_notice_request", text="")
    assert before["status"] == "ok"
    assert live.result(cell)[0]["status"] == "ok"
    assert _value(live, "[left, right, seen == list(range(40))]") == [40, 40, True]


def test_safe_points_in_cells_with_await_in_threads_and_beside_subshells(kernel: Start, place: Place) -> None:
    live = kernel()
    subshell = live.ask("create_subshell_request")["subshell_id"]
    live.run(
        "import gpufair, threading, asyncio, time; begun = threading.Event(); leave = threading.Event(); taken = []"
    )
    message = live.client.session.msg(
        "execute_request",
        {"code": "begun.set(); leave.wait(60)", "silent": False, "store_history": False, "allow_stdin": False},
    )
    message["header"]["subshell_id"] = subshell
    live.client.shell_channel.send(message)
    cell = live.client.execute(
        "begun.wait(30); print('running')\n"
        "while not asked.exists(): time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "other = threading.Thread(target=lambda: taken.append(gpufair.safe_point())); other.start(); other.join()\n"
        "taken.append(gpufair.safe_point()); leave.set()\n"
        "while len(taken) < 3:\n"
        "    await asyncio.sleep(0.01)\n"
        "    if gpufair.safe_point(): taken.append(True)".replace(
            "asked.exists()", "__import__('os').path.exists('asked')"
        )
    )
    live.until_printed("running")
    waiting = live.send("gpufair_checkpoint_request", id="c1", sequence=1, wait_s=LIMIT_S, **place)
    place_of_cell = live.log.parent / "asked"
    place_of_cell.touch()
    saved = live.answer(waiting)
    assert saved["status"] == "ok", saved
    assert live.result(cell)[0]["status"] == "ok"
    assert _value(live, "taken") == [False, False, True], "not in a thread, not while a subshell runs a cell"


HOOKS = """
import gpufair, threading
log = []
class Link:
    def __init__(self, name, bad=''): self.name, self.bad, self.lock = name, bad, threading.Lock()
    def __gpufair_park__(self):
        if self.bad == 'park': raise OSError('the server does not answer')
        self.lock = None
    def __gpufair_unpark__(self):
        if self.bad == 'unpark': raise OSError('no route')
        self.lock = threading.Lock()
a, b, c = Link('a'), [Link('b', 'park')], Link('c', 'unpark')
@gpufair.on_preempt
def note(): log.append('preempted')
@gpufair.on_preempt
def fails(): 1 / 0
"""


def test_functions_and_hooks_of_the_users(kernel: Start, place: Place) -> None:
    first = kernel()
    first.run(HOOKS)
    # A checkpoint that no preemption asks for: objects are parked and taken up again, functions are not called.
    saved = first.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)
    assert saved["lost"] == [["b", "__gpufair_park__ of Link failed: OSError: the server does not answer"]]
    assert _value(first, "[a.lock is not None, log]") == [True, []]
    saved = _preempted(first, place, 2)
    assert [name for name, _ in saved["lost"]] == ["b", "on_preempt fails"]
    assert saved["lost"][1][1] == "ZeroDivisionError: division by zero"
    first.kill()
    second, back = _restored(kernel, place, 2)
    assert dict(back["lost"])["c"] == "__gpufair_unpark__ of Link failed: OSError: no route"
    assert {name for name, _ in back["lost"]} == {"b", "c"}
    assert _value(second, "[a.name, a.lock is not None, 'c' in globals(), log]") == ["a", True, False, ["preempted"]]
    saved = _preempted(second, place, 3)
    assert saved["status"] == "ok"
    third, _ = _restored(kernel, place, 3)
    assert _value(third, "log") == ["preempted", "preempted"], "functions of the notebook are registered again"


def test_an_interrupted_item_runs_again_and_a_user_who_interrupts_begins_anew(kernel: Start, place: Place) -> None:
    cell_text = (
        "import gpufair, time\nfor step in gpufair.resumable(range(5), 'epochs'):\n    seen.append(step)\n"
        "    if step == 2 and wait: print('running', flush=True); time.sleep(60)"
    )
    first = kernel()
    first.run("seen = []; wait = True")
    first.client.execute(cell_text)
    first.until_printed("running")
    first.ask("gpufair_notice_request", text=TEXT, deadline_s=time.time() + 30)
    waiting = first.send("gpufair_checkpoint_request", id="c1", sequence=1, wait_s=LIMIT_S, hold_s=LIMIT_S, **place)
    first.interrupt()
    assert first.answer(waiting)["status"] == "ok"
    first.kill()
    second, _ = _restored(kernel, place)
    second.run("wait = False")
    second.run(cell_text)
    assert _value(second, "seen") == [0, 1, 2, 2, 3, 4]
    second.run("seen = []; wait = True")
    cell = second.client.execute(cell_text)
    second.until_printed("running")
    second.interrupt()
    assert second.result(cell)[0]["ename"] == "KeyboardInterrupt"
    second.run("wait = False; seen = []")
    second.run(cell_text)
    assert _value(second, "seen") == [0, 1, 2, 3, 4]


def test_preflight_as_api_magic_and_message(kernel: Start, place: Place) -> None:
    live = kernel()
    live.run("import threading\nguard = threading.Lock(); numbers = list(range(1000))")
    told = live.ask("gpufair_preflight_request")
    assert (told["status"], told["parkable"], told["measured"]) == ("ok", False, False)
    assert [(one["name"], one["state"]) for one in told["variables"]] == [
        ("guard", "red"),
        ("numbers", "green"),
        ("threading", "green"),
    ]
    _, printed = live.run("import gpufair; print(gpufair.preflight())")
    assert printed.startswith("Parking this session would lose 1 of 4 variables")
    cell = live.client.execute("%gpufair preflight")
    [shown] = [m["content"]["data"] for m in live.outputs(cell) if m["msg_type"] == "execute_result"]
    assert "<code>guard</code>" in shown["text/html"]
    assert "create it after the restore" in shown["text/plain"]
    live.run("import os; block = bytearray(os.urandom(8 << 20))  # not to be compressed")
    assert live.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)["status"] == "ok"
    assert live.ask("gpufair_preflight_request")["measured"] is True
    cell = live.client.execute("%gpufair dance")
    errors = [m["content"] for m in live.outputs(cell) if m["msg_type"] == "stream"]
    assert "%gpufair knows budget, checkpoint, preflight, replay, rerun, status, why, not 'dance'" in errors[0]["text"]


def test_a_cell_is_run_again_for_what_it_made_only_where_that_is_certain(kernel: Start, place: Place) -> None:
    first = kernel()
    first.run("%gpufair replay on")
    first.run("import threading\nbase = [1, 2, 3]; ran = []; factor = 2")
    first.run("numbers = (n * factor for n in base)")  # certain
    first.run("guard = threading.Lock()")  # certain
    first.run("used = (n for n in base)")
    first.run("next(used)")  # a later cell has moved it
    first.run("stale = (n for n in ran)")
    first.run("ran.append(1)")  # what it read has changed
    first.run("mixed = (n for n in base); kept = 5")  # would overwrite what came back
    first.run("kept += 1")
    saved = first.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)
    assert {name for name, _ in saved["lost"]} == {"numbers", "guard", "used", "stale", "mixed"}
    first.kill()
    second, back = _restored(kernel, place)
    assert {name for name, _ in back["lost"]} == {"used", "stale", "mixed"}
    assert [text for text in back["warnings"] if "run again" in text] == [
        "cell [3] was run again, for numbers",
        "cell [4] was run again, for guard",
    ]
    assert _value(second, "[list(numbers), guard.locked(), kept, 'used' in globals()]") == [[2, 4, 6], False, 6, False]
    off = second.client.execute("%gpufair replay off")
    assert "replay is off" in str(second.outputs(off))
    second.run("again = (n for n in base)")
    second.ask("gpufair_checkpoint_request", id="c2", sequence=2, **place)
    _, back = _restored(kernel, place, 2)
    assert "again" in {name for name, _ in back["lost"]}
