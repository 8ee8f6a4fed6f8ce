"""The agent in a pod: one workload, and an exit status that says how it went."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.node.pod_exits import PodExit
from gpufair.wire import API_VERSION
from tests.integration.node.pod_rig import POD, PodRig
from tests.integration.node.rig import until

Make = Callable[..., PodRig]


@pytest.fixture
def make_pod(tmp_path: Path) -> Iterator[Make]:
    made: list[PodRig] = []

    def make(*, served: bool = True, **options: Any) -> PodRig:
        rig = PodRig(tmp_path / f"pod{len(made)}", **options)
        made.append(rig)
        rig.service.start()
        rig.start_agent()
        if served:
            rig.service.wait_hello(1)
        return rig

    yield make
    for rig in made:
        rig.close()


def command(rig: PodRig, code: str, **more: Any) -> None:
    rig.start("w", launch={"type": "command", "argv": ["python", "-c", code]}, **more)


def test_a_pod_runs_one_workload_and_ends(make_pod: Make) -> None:
    """It says who it is, starts what it is for, and is gone once the service has its last report."""
    rig = make_pod()
    hello = rig.service.hellos[0]
    assert (hello.api_version, hello.node.name, hello.node.gpu_ids) == (API_VERSION, POD, ("virtual-0", "virtual-1"))
    assert (hello.node.host, hello.running) == ("127.0.0.1", ())
    command(rig, "import os; print(os.environ['GPUFAIR_NODE'], os.environ['CUDA_VISIBLE_DEVICES'])", gpus=2)
    assert rig.service.wait("w", "exited").body["outcome"] == "completed"
    assert rig.code() == PodExit.IN_ORDER
    assert rig.log("w") == f"{POD} 0,1\n"
    assert not list(rig.folder.glob("workloads/*/start.json")), "its keys are wiped"


def test_it_does_not_end_before_its_last_report_is_acknowledged(make_pod: Make) -> None:
    """The service's store is away for a moment: the end of the workload waits for it."""
    rig = make_pod()
    rig.service.acknowledging = False
    command(rig, "raise SystemExit(3)")
    until((rig.folder / "workloads/w.1/reports.jsonl").exists)
    until(lambda: '"exited"' in (rig.folder / "workloads/w.1/reports.jsonl").read_text())
    time.sleep(1.0)  # nothing is to happen
    assert rig.agent is not None
    assert rig.agent.poll() is None
    rig.service.acknowledging = True
    assert rig.service.wait("w", "exited").body["code"] == 3
    assert rig.code() == PodExit.FAILED
    assert "its workload has failed" in rig.said()


@pytest.mark.parametrize(
    ("launch", "more", "reason"),
    [
        ({"type": "command", "argv": ["/no/such/program"]}, {}, "/no/such/program"),
        ({"type": "command", "argv": ["true"]}, {"gpus": 3}, "3 GPUs were asked for but 2 of 2 are free"),
        ({"type": "dance", "argv": ["true"]}, {}, "launch type 'dance' is unknown"),
    ],
)
def test_what_cannot_start_is_said(make_pod: Make, launch: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    rig = make_pod()
    rig.start("w", launch=launch, **more)
    assert reason in rig.service.wait("w", "start_failed").body["reason"]
    assert rig.code() == PodExit.NOT_STARTED


def test_another_workload_is_refused(make_pod: Make) -> None:
    """A pod is for one start of one workload: its room, its volumes and its token are that one's."""
    rig = make_pod()
    rig.start("other", launch={"type": "command", "argv": ["true"]})
    rig.start("w", incarnation=2, launch={"type": "command", "argv": ["true"]})
    assert "is for w, start 1, and for nothing else" in rig.service.wait("other", "start_failed").body["reason"]
    rig.service.wait("w", "start_failed", incarnation=2)
    command(rig, "print('mine')")
    rig.service.wait("w", "exited")
    assert rig.code() == PodExit.IN_ORDER


def test_a_stop_before_any_start_ends_it(make_pod: Make) -> None:
    rig = make_pod()
    rig.service.command("stop", "w")
    assert rig.service.wait("w", "released").body == {"busy": False}
    assert rig.code() == PodExit.IN_ORDER


def test_sigterm_before_any_start(make_pod: Make) -> None:
    """A drain that comes at once: nothing is started any more, and the service hears that nothing runs."""
    rig = make_pod()
    rig.terminate()
    assert rig.service.wait("w", "released").body == {"busy": False}
    assert rig.code() == PodExit.IN_ORDER


def test_sigterm_is_a_notice(make_pod: Make) -> None:
    """`kubectl drain`: the session is saved, restored by the next pod, and the first one has ended in order."""
    rig = make_pod()
    rig.start("w", gpus=1)
    body = rig.service.wait("w", "serving").body
    assert set(body["connection"]["via"]) == {"host", "port", "fingerprint"}
    assert body["connection"]["via"]["host"] == "127.0.0.1"
    assert rig.ask(body["connection"], "globals().update(x=41)") == "None"
    rig.terminate()
    rig.terminate()
    saved = rig.service.wait("w", "checkpointed").body
    assert rig.service.wait("w", "released").body == {"busy": False}
    assert rig.code() == PodExit.IN_ORDER
    assert len(rig.service.of("w", "checkpointed")) == 1, "two notices are one"
    rig.hang_up()

    again = make_pod()
    args = {"checkpoint_dir": str(rig.root / "checkpoints" / "w"), "restore": saved["id"], "next_sequence": 2}
    again.start("w", gpus=1, **args)
    assert again.ask(again.service.wait("w", "serving").body["connection"], "x") == "41"
    again.service.command("stop", "w")
    assert again.code() == PodExit.IN_ORDER


def test_a_notice_of_the_service_and_sigterm_are_one(make_pod: Make) -> None:
    """The service says why and by when, and has the pod deleted: one checkpoint, one end, its own sentence."""
    rig = make_pod(grace_s=30.0)
    seen = rig.root / "seen"
    code = f"""
import json, os, signal, time
def leave(*_):
    with open({str(seen)!r}, "a") as file:
        file.write(json.load(open(os.environ["GPUFAIR_NOTICE_FILE"]))["text"] + "\\n")
    time.sleep(1)
    raise SystemExit
signal.signal(signal.SIGTERM, leave)
open({str(seen)!r}, "w").close()
time.sleep(60)
"""
    command(rig, code)
    until(seen.exists)
    rig.terminate()
    rig.preempt("w", 10.0)  # a moment later, as it may come
    rig.terminate()
    assert rig.service.wait("w", "released").body == {"busy": True}
    assert rig.code() == PodExit.IN_ORDER
    assert seen.read_text() == "Somebody under-served waits.\n"
    assert len(rig.service.of("w", "released")) == 1


def test_a_busy_cell_is_given_the_grace_and_no_more(make_pod: Make) -> None:
    """The pod is killed when its grace is over: by then all is saved and said."""
    rig = make_pod(grace_s=10.0)
    rig.start("w")
    connection = rig.service.wait("w", "serving").body["connection"]
    rig.ask(connection, "globals().update(x=1)")
    rig.run(connection, "import time\ntime.sleep(60)")
    until(lambda: [r for r in rig.service.of("w", "activity") if r.body["busy"]])
    begun = time.monotonic()
    rig.terminate()
    assert rig.service.wait("w", "released").body["busy"]
    assert rig.code() == PodExit.IN_ORDER
    assert time.monotonic() - begun < 10.0
    assert rig.service.of("w", "checkpointed")


def test_a_token_that_is_not_taken(make_pod: Make) -> None:
    """The service's secret has changed: the pod gives up soon, and its status says why."""
    rig = make_pod(served=False, linger_s=2.0)
    (rig.given / "token").write_text("another")
    rig.kill_agent()
    rig.start_agent()
    assert rig.code() == PodExit.REFUSED
    assert "did not take its token" in rig.said()


def test_a_service_that_is_never_reached(make_pod: Make) -> None:
    rig = make_pod(served=False, linger_s=60.0)
    rig.kill_agent()
    rig.service.stop()
    rig.options["linger_s"] = 1.5
    rig.start_agent()
    assert rig.code() == PodExit.NEVER_REACHED
    rig.service._server = None


def test_a_service_that_goes_away_for_good(make_pod: Make) -> None:
    """All is saved and ended after the linger time; what was not said is left with the records."""
    rig = make_pod(linger_s=2.0)
    rig.start("w")
    connection = rig.service.wait("w", "serving").body["connection"]
    rig.ask(connection, "globals().update(x=1)")
    rig.service.stop()
    rig.service._server = None
    assert rig.code(60.0) == PodExit.SERVICE_LOST
    left = json.loads((rig.root / "records/w" / f"unreported.{POD}.json").read_text())["reports"]
    assert [report["kind"] for report in left][-1] == "released"
    assert "checkpointed" in [report["kind"] for report in left]


def test_the_service_restarts(make_pod: Make) -> None:
    """It forgets all: the pod says what it runs, and what it could not say before."""
    rig = make_pod()
    rig.start("w")
    connection = rig.service.wait("w", "serving").body["connection"]
    rig.service.stop()
    rig.ask(connection, "globals().update(x=1)")
    rig.service.start()
    rig.move_service()
    hello = rig.service.wait_hello(2)
    assert hello.running == (("w", 1),)
    until(lambda: rig.service.of("w", "activity"))
    rig.terminate()
    rig.service.wait("w", "checkpointed")
    rig.service.wait("w", "released")
    assert rig.code() == PodExit.IN_ORDER


def test_grace_that_is_too_short_for_a_service_that_is_away(make_pod: Make) -> None:
    """A drain of the node that runs the service, too: it is saved, and left for the next one to read."""
    rig = make_pod(grace_s=8.0)
    rig.start("w")
    rig.ask(rig.service.wait("w", "serving").body["connection"], "globals().update(x=1)")
    rig.service.stop()
    rig.service._server = None
    begun = time.monotonic()
    rig.terminate()
    assert rig.code() == PodExit.OUT_OF_TIME
    assert time.monotonic() - begun < 8.0
    left = json.loads((rig.root / "records/w" / f"unreported.{POD}.json").read_text())["reports"]
    assert {"checkpointed", "released"} <= {report["kind"] for report in left}


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_is_not_said_yet_is_safe_at_once(make_pod: Make, comes_back: bool) -> None:
    """Whoever deletes a pod may give it less time than it thinks it has, and it is killed without a warning."""
    rig = make_pod(grace_s=60.0)
    rig.start("w")
    rig.ask(rig.service.wait("w", "serving").body["connection"], "globals().update(x=1)")
    rig.service.stop()
    rig.terminate()
    file = rig.root / "records/w" / f"unreported.{POD}.json"
    until(file.exists, 30)
    until(lambda: json.loads(file.read_text())["reports"][-1]["kind"] == "released")
    if comes_back:
        rig.service.start()
        rig.move_service()
        rig.service.wait("w", "released")
        assert rig.code() == PodExit.IN_ORDER
        assert not file.exists()
    else:
        rig.kill_agent()
        rig.service._server = None
        assert file.exists()


@pytest.mark.parametrize("broken", ["", "{}", '{"pod": 1}'])
def test_a_bad_config_is_said(tmp_path: Path, broken: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.json"
    path.write_text(broken)
    done = subprocess.run([sys.executable, "-m", "gpufair.node.pod", "--config", str(path)], check=False, timeout=60)
    assert done.returncode == PodExit.BAD_CONFIG
    assert "Traceback" not in capfd.readouterr().err
