"""A session is checkpointed, its process killed, and it goes on in another one."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kernel.conftest import LIMIT_S, LiveKernel

Start = Callable[[], LiveKernel]
Place = dict[str, Any]

_WORK = """
import threading, asyncio
class Model:
    def __init__(self): self.weights = [1]
    def k(self): return K
K = 10
model = Model(); weights = model.weights
def read(): return K
stream = (i for i in range(3)); guard = threading.Lock()
_private = 5
"""


def _value(kernel: LiveKernel, expression: str) -> Any:
    reply, printed = kernel.run(f"import json as _j; print(_j.dumps({expression}))")
    assert reply["status"] == "ok", reply
    assert printed.count("\n") == 1, printed
    return json.loads(printed)


def test_a_session_moves_to_another_process(kernel: Start, place: Place) -> None:
    first = kernel()
    first.run(_WORK)
    first.run("40 + 2")
    saved = first.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)
    assert saved["type"] == "gpufair_checkpoint_reply"
    assert saved["status"] == "ok", saved
    assert (saved["id"], saved["sequence"]) == ("c1", 1)
    assert saved["size_bytes"] > 1000
    assert saved["duration_s"] > 0
    assert {name for name, _ in saved["lost"]} == {"stream", "guard"}
    assert saved["saved"] == 8  # threading, asyncio, Model, K, model, weights, read, _private, and not the shell's own
    first.kill()

    second = kernel()
    back = second.ask("gpufair_restore_request", id="c1", **place)
    assert back["type"] == "gpufair_restore_reply"
    assert back["status"] == "ok", back
    assert back["restored"] == 8
    assert back["warnings"] == []
    assert {name for name, _ in back["lost"]} == {"stream", "guard"}
    reply, printed = second.run(
        "print(model.weights is weights, isinstance(model, Model), read(), model.k(), _private, _2, Out[2], In[2], _)"
    )
    assert printed == "True True 10 10 5 42 42 40 + 2 42\n"
    assert reply["execution_count"] == 3
    assert _value(second, "'stream' in globals()") is False
    second.run("K = 11")
    assert _value(second, "[read(), model.k(), In[3][:5], len(In)]") == [11, 11, "print", 7]
    assert _value(second, "[n for n in get_ipython().run_line_magic('who_ls', '') if n in ('K', 'model', 'read')]") == [
        "K",
        "model",
        "read",
    ]


def test_a_restored_session_can_be_saved_again(kernel: Start, place: Place) -> None:
    first = kernel()
    first.run("class A: ...\na = A(); a.n = 1\ndef bump(): a.n += 1\nbump()")
    assert first.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)["status"] == "ok"
    # Into the live kernel: later changes are undone, other variables stay.
    first.run("bump(); other = 1")
    assert first.ask("gpufair_restore_request", id="c1", **place)["status"] == "ok"
    assert _value(first, "[a.n, other, isinstance(a, A)]") == [2, 1, True]
    first.run("bump()")
    assert first.ask("gpufair_checkpoint_request", id="c2", sequence=2, **place)["status"] == "ok"
    first.kill()
    second = kernel()
    assert second.ask("gpufair_restore_request", id="c2", **place)["status"] == "ok"
    second.run("bump()")
    assert _value(second, "[a.n, type(a) is A]") == [4, True]


def test_a_running_cell_is_never_saved_half(kernel: Start, place: Place) -> None:
    """Refused at once, refused after the wait, or saved at its end; and the control channel answers meanwhile."""
    live = kernel()
    cell = live.client.execute(
        "import time\nleft = right = 0\nprint('running')\nend = time.monotonic() + 2.5\n"
        "while time.monotonic() < end:\n    left += 1\n    right += 1"
    )
    live.until_printed("running")
    at_once = live.ask("gpufair_checkpoint_request", id="a", sequence=1, **place)
    assert at_once["reason"] == "busy: a cell is running"
    began = time.monotonic()
    late = live.send("gpufair_checkpoint_request", id="b", sequence=2, wait_s=0.3, **place)
    waiting = live.send("gpufair_checkpoint_request", id="c", sequence=3, wait_s=LIMIT_S, **place)
    assert live.ask("kernel_info_request")["status"] == "ok"
    assert time.monotonic() - began < 2, "the control channel was blocked"
    # Read in the order in which they come.
    refused = live.answer(late)
    assert refused["reason"] == "busy: no cell boundary was reached within 0.3 s"
    assert time.monotonic() - began < 2
    assert live.answer(waiting)["status"] == "ok"
    assert live.result(cell)[0]["status"] == "ok"
    assert not (Path(place["directory"]) / "b").exists()
    live.kill()
    other = kernel()
    assert other.ask("gpufair_restore_request", id="c", **place)["status"] == "ok"
    assert _value(other, "left == right > 0") is True


def test_a_cell_with_top_level_await_counts_as_running(kernel: Start, place: Place) -> None:
    """The main loop is free while such a cell waits; a job on it would run in the middle of the cell."""
    live = kernel()
    cell = live.client.execute(
        "import asyncio\nstate = 'half'\nprint('running')\nawait asyncio.sleep(1.5)\nstate = 'whole'"
    )
    live.until_printed("running")
    assert live.ask("gpufair_checkpoint_request", id="a", sequence=1, **place)["reason"] == "busy: a cell is running"
    assert live.ask("gpufair_checkpoint_request", id="b", sequence=2, wait_s=LIMIT_S, **place)["status"] == "ok"
    assert live.result(cell)[0]["status"] == "ok"
    live.run("state = 'later'")
    live.ask("gpufair_restore_request", id="b", **place)
    assert _value(live, "state") == "whole"


def test_a_waiting_checkpoint_comes_before_the_cells_that_are_queued(kernel: Start, place: Place) -> None:
    """Run All: the session is to be saved after the cell that runs now, not after all of them."""
    live = kernel()
    live.run("done = []\nimport time")
    cells = [live.client.execute("print('first'); time.sleep(1); done.append(0)")]
    live.until_printed("first")
    cells += [live.client.execute(f"done.append({i})") for i in range(1, 6)]
    assert live.ask("gpufair_checkpoint_request", id="c", sequence=1, wait_s=LIMIT_S, **place)["status"] == "ok"
    assert live.result(cells[-1])[0]["status"] == "ok"
    assert _value(live, "done") == [0, 1, 2, 3, 4, 5]
    live.ask("gpufair_restore_request", id="c", **place)
    assert _value(live, "done") == [0]


def test_cells_are_held_after_a_checkpoint_that_precedes_a_stop(kernel: Start, place: Place) -> None:
    live = kernel()
    saved = live.ask("gpufair_checkpoint_request", id="c", sequence=1, hold_s=LIMIT_S, **place)
    assert saved["status"] == "ok"
    marker = Path(place["directory"]) / "ran"
    cell = live.client.execute(f"open({str(marker)!r}, 'w').close()")
    live.interrupt()  # reaches no cell, and must not end the kernel
    assert live.ask("kernel_info_request")["status"] == "ok"
    time.sleep(0.3)  # long enough for a cell that is not held
    assert not marker.exists()
    assert live.ask("gpufair_notice_request", text="")["status"] == "ok"
    assert live.result(cell)[0]["status"] == "ok"
    assert marker.exists()


def test_a_preemption_is_called_by_its_name(kernel: Start, place: Place) -> None:
    live = kernel()
    text = "your protected time is over; beta starts on this GPU"
    live.ask("gpufair_notice_request", text=text, deadline_s=time.time() + 30)
    cell = live.client.execute("def inner():\n    while True: pass\nprint('running')\ninner()")
    live.until_printed("running")
    waiting = live.send("gpufair_checkpoint_request", id="c", sequence=1, wait_s=LIMIT_S, **place)
    live.interrupt()
    shown = [m["content"] for m in live.outputs(cell) if m["msg_type"] == "error"]
    assert [(e["ename"], e["evalue"]) for e in shown] == [("Preempted", text)]
    trace = "\n".join(shown[0]["traceback"])
    assert text in trace
    assert "line 2: while True: pass" in trace
    assert "KeyboardInterrupt" not in trace
    assert live.answer(waiting)["status"] == "ok"
    replies = [live.client.get_shell_msg(timeout=LIMIT_S)]
    while replies[-1]["parent_header"]["msg_id"] != cell:
        replies.append(live.client.get_shell_msg(timeout=LIMIT_S))
    assert replies[-1]["content"]["ename"] == "Preempted"
    assert replies[-1]["content"]["evalue"] == text
    # One notice, one interrupt: the next is the user's.
    cell = live.client.execute("print('again')\nwhile True: pass")
    live.until_printed("again")
    live.interrupt()
    reply, _ = live.result(cell)
    assert reply["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_notice_in_a_cell_with_await_or_withdrawn(withdrawn: bool, kernel: Start) -> None:
    live = kernel()
    live.ask("gpufair_notice_request", text="soon over", deadline_s=0)
    if withdrawn:
        live.ask("gpufair_notice_request", text="")
    cell = live.client.execute("import asyncio\nprint('running')\nawait asyncio.sleep(60)")
    live.until_printed("running")
    live.interrupt()
    reply, _ = live.result(cell)
    assert reply["ename"] == ("CancelledError" if withdrawn else "Preempted")


def test_other_errors_are_shown_as_ever(kernel: Start) -> None:
    live = kernel()
    live.ask("gpufair_notice_request", text="soon over", deadline_s=0)
    reply, _ = live.run("1 / 0")
    assert reply["ename"] == "ZeroDivisionError"
    assert "Preempted" not in "".join(reply["traceback"])


def test_each_cell_says_which_it_is(kernel: Start) -> None:
    """For the recorder. In the metadata of execute_input, because nbclient logs an error for unknown message types."""
    live = kernel()
    code = "print('hé')"
    message = live.client.session.msg(
        "execute_request",
        {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False},
        metadata={"cellId": "cell-7"},
    )
    live.client.shell_channel.send(message)
    found = live.outputs(message["header"]["msg_id"])
    [shown] = [m for m in found if m["msg_type"] == "execute_input"]
    assert shown["content"] == {"code": code, "execution_count": 1}
    assert shown["metadata"]["gpufair"] == {
        "cell_id": "cell-7",
        "code_sha256": hashlib.sha256(code.encode()).hexdigest(),
    }
    assert {m["msg_type"] for m in found} == {"status", "execute_input", "stream"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "../c"}, "its name may hold"),
        ({"sequence": "one"}, "sequence must be"),
        ({"directory": "/proc/nowhere"}, "was not written"),
        ({"key_file": "/nowhere"}, "the key file /nowhere cannot be opened"),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_reason(
    change: dict[str, Any], reason: str, kernel: Start, place: Place
) -> None:
    live = kernel()
    asked = {"id": "c", "sequence": 1, **place, **change}
    reply = live.ask("gpufair_checkpoint_request", **asked)
    assert reply["status"] == "error"
    assert reason in reply["reason"]
    assert "Traceback" not in reply["reason"]
    assert _value(live, "1") == 1


def test_a_foreign_checkpoint_changes_nothing(kernel: Start, place: Place, tmp_path: Path) -> None:
    live = kernel()
    live.run("x = 1")
    assert live.ask("gpufair_checkpoint_request", id="c", sequence=1, **place)["status"] == "ok"
    live.run("x = 2")
    other = tmp_path / "other-key"
    other.write_text("77" * 32)
    other.chmod(0o600)
    reply = live.ask("gpufair_restore_request", id="c", **{**place, "key_file": str(other)})
    assert reply["status"] == "error"
    assert "belongs to another user" in reply["reason"]
    reply = live.ask("gpufair_restore_request", id="none", **place)
    assert "there is no finished checkpoint 'none'" in reply["reason"]
    assert _value(live, "x") == 2


def test_exit_and_the_log_are_as_usual(kernel: Start) -> None:
    live = kernel()
    reply, _ = live.run("exit()")
    assert reply["payload"] == [{"source": "ask_exit", "keepkernel": False}]
    end = time.monotonic() + LIMIT_S
    while live.manager.is_alive():
        assert time.monotonic() < end, "exit() did not end the kernel"
        time.sleep(0.05)
    assert live.log.read_text() == "", "a kernel on loopback has nothing to warn about"


def test_a_subshell_counts_as_running(kernel: Start, place: Place) -> None:
    live = kernel()
    subshell = live.ask("create_subshell_request")["subshell_id"]
    live.run("import threading; begun = threading.Event(); leave = threading.Event()")
    message = live.client.session.msg(
        "execute_request",
        {"code": "begun.set(); leave.wait(60)", "silent": False, "store_history": False, "allow_stdin": False},
    )
    message["header"]["subshell_id"] = subshell
    live.client.shell_channel.send(message)
    assert live.run("assert begun.wait(30)")[0]["status"] == "ok"
    assert live.ask("gpufair_checkpoint_request", id="a", sequence=1, **place)["reason"] == "busy: a cell is running"
    waiting = live.send("gpufair_checkpoint_request", id="b", sequence=2, wait_s=LIMIT_S, **place)
    assert live.run("leave.set()")[0]["status"] == "ok"
    assert live.answer(waiting)["status"] == "ok"


def test_asking_a_kernel_draws_no_random_numbers(kernel: Start, place: Place) -> None:
    """Else the results of a seeded session would depend on how often somebody asked."""
    live = kernel()
    live.run("import random; random.seed(3)")
    for _ in range(3):
        assert live.ask("kernel_info_request")["status"] == "ok"
        live.client.kernel_info(reply=True, timeout=LIMIT_S)
    assert live.ask("gpufair_preflight_request")["status"] == "ok"
    assert live.ask("gpufair_checkpoint_request", id="c", sequence=1, **place)["status"] == "ok"
    expected = random.Random(3).random()
    assert _value(live, "random.random()") == expected
