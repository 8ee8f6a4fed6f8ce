"""Cells that run again after a preemption, as a real kernel takes its part in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.kernel.conftest import LiveKernel

Start = Callable[[], LiveKernel]
Place = dict[str, Any]
LOOP = "x.append(1)\nprint('on', flush=True)\n{}time.sleep(60)"


def sent(live: LiveKernel, code: str, *, tags: tuple[str, ...] = ("gpufair-rerun",), **offer: Any) -> str:
    """Send a cell as a gate does."""
    if (begins_with := offer.pop("begins_with", None)) is not None:
        offer["from"] = begins_with
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    message = live.client.session.msg("execute_request", content, metadata={"tags": list(tags), "gpufair": offer})
    live.client.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def preempted(live: LiveKernel, place: Place, *, interrupt: bool = True) -> dict[str, Any]:
    """Notice, checkpoint and interrupt, as a supervisor does."""
    live.ask("gpufair_notice_request", text="make room", deadline_s=time.time() + 30)
    asked = live.send("gpufair_checkpoint_request", id="c9", sequence=9, wait_s=30, hold_s=30, **place)
    for _ in range(5 if interrupt else 0):  # one may reach the cell where Python can only report it, not raise it
        live.interrupt()
        with suppress(AssertionError):
            return live.answer(asked, 5.0)
    return live.answer(asked)


def saved(live: LiveKernel, place: Place) -> None:
    assert live.ask("gpufair_checkpoint_request", id="c1", sequence=1, **place)["status"] == "ok"


@pytest.mark.parametrize("switch", [False, True])
def test_what_it_did_is_not_saved(kernel: Start, place: Place, switch: bool) -> None:
    """One line instead of an error, and the checkpoint by name. The next kernel makes sure of it."""
    live = kernel()
    live.run("import time; x = []" + ("\n%gpufair rerun on" if switch else ""))
    saved(live, place)
    cell = sent(live, LOOP.format(""), tags=() if switch else ("gpufair-rerun",), again=True)
    live.until_printed("on")
    assert preempted(live, place)["status"] == "kept"
    messages = live.outputs(cell)
    assert [m["msg_type"] for m in messages] == ["stream", "status"]
    assert messages[0]["metadata"] == {"gpufair": {"cut": "c1"}}
    reply = live.client.get_shell_msg(timeout=10)["content"]
    while "gpufair" not in reply:
        reply = live.client.get_shell_msg(timeout=10)["content"]
    assert (reply["ename"], reply["gpufair"]) == ("Preempted", {"rerun": switch, "from": "c1"})
    live.kill()

    second = kernel()
    refused = second.result(sent(second, "print(1)", again=True, begins_with="c1"))[0]
    assert (refused["status"], refused["ename"]) == ("error", "NotRun")
    refused = second.result(sent(second, "print(1)", again=True, begins_with="away"))[0]
    assert (refused["ename"], "in the CPU pool did not come back" in refused["evalue"]) == ("NotRun", True)
    assert second.ask("gpufair_restore_request", id="c1", **place)["status"] == "ok"
    reply, printed = second.result(sent(second, "print(x)", again=True, begins_with="c1", text="again\n"))
    assert (reply["gpufair"], printed) == ({"rerun": switch}, "again\n[]\n")


@pytest.mark.parametrize("case", ["not offered", "no tag", "saved inside"])
def test_what_it_did_is_saved(kernel: Start, place: Place, case: str) -> None:
    live = kernel()
    live.run("import time, gpufair; x = []")
    saved(live, place)
    tags = () if case == "no tag" else ("gpufair-rerun",)
    inside = "while not gpufair.safe_point(): time.sleep(0.01)\nprint('saved', flush=True)\n"
    cell = sent(live, LOOP.format(inside if case == "saved inside" else ""), tags=tags, again=case != "not offered")
    live.until_printed("on")
    if case == "saved inside":
        assert live.ask("gpufair_checkpoint_request", id="c2", sequence=2, wait_s=30, **place)["inside"] is True
        live.until_printed("saved")
    assert preempted(live, place)["status"] == "ok"
    reply, _ = live.result(cell)
    assert reply["ename"] == "Preempted"
    assert not reply["gpufair"].get("from")


def test_the_session_is_saved_before(kernel: Start, place: Place) -> None:
    """Asked of the supervisor, who hears it; without an answer the cell begins all the same."""
    live = kernel()
    live.run("x = 1")
    cell = sent(live, "x += 1", again=True)
    while (message := live.client.get_iopub_msg(timeout=10))["msg_type"] != "gpufair_ask":
        pass
    assert message["content"] == {"metadata": {"gpufair": {"ask": "checkpoint"}}}
    saved(live, place)
    assert live.result(cell)[0]["status"] == "ok"
    live.kill()
    second = kernel()
    second.ask("gpufair_restore_request", id="c1", **place)
    assert second.run("print(x)")[1] == "1\n"
    second.run("x = 5")
    assert second.result(sent(second, "print(x)", again=True))[1] == "5\n"
