"""The command line, the client and the real service together: what an operator does on a small day."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from gpufair.client import (
    Announced,
    Client,
    Disconnected,
    Refused,
    Resync,
    Synced,
    Workload,
    WorkloadEvent,
    ensure_service,
)
from gpufair.client.announcing import Announcements
from gpufair.client.embedded import StartFailed
from gpufair.client.endpoint import from_folder
from gpufair.node import checkpoint
from gpufair.service.identity.secrets import Secrets

WAIT_S = 60.0
Found = TypeVar("Found")

CONFIG = """\
budgets = "budgets.toml"
users = ["ria", "ben"]

[grace]
session = "5s"
batch = "5s"

[[node]]
name = "node-a"
gpus = 1
gpu_type = "virtual"

[[profile]]
name = "small"
display_name = "Small"
gpus = 1
allocation = "language/digits"
min_runtime = "10m"
"""
BUDGETS = """\
[[allocation]]
path = "language/digits"
share = 1
members = ["ria"]

[[allocation]]
path = "vision"
share = 1
members = ["ben"]
"""


def until(what: str, probe: Callable[[], Found | None]) -> Found:
    """What ``probe`` finds; asked again until then."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {WAIT_S:g} s in vain for {what}")


def processes_of(folder: Path) -> list[psutil.Process]:
    """The service, agents, supervisors and workloads of this test: all have its folder in their arguments or environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            told = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(str(folder) in text for text in told):
                found.append(process)
    return found


@dataclass(frozen=True)
class Place:
    """A state folder with its configuration."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUFAIR_")}
        return {**kept, "GPUFAIR_STATE_DIR": str(self.state)}

    def gpufair(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command as a user does, and check its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "gpufair.cli", *args],
            env=self.environ(), capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, (args, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *args: str) -> Any:
        return json.loads(self.gpufair(*args, "--json").stdout)


@contextmanager
def a_place(folder: Path, config: str = CONFIG, budgets: str = BUDGETS) -> Iterator[Place]:
    """A configured folder; what ran for it is gone afterwards."""
    (folder / "gpufair.toml").write_text(config)
    (folder / "budgets.toml").write_text(budgets)
    yield Place(folder)
    left = processes_of(folder)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


@contextmanager
def serving(place: Place) -> Iterator[Place]:
    """A real service in it."""
    log = (place.folder / "serve.log").open("wb")
    with log, subprocess.Popen(
        [sys.executable, "-m", "gpufair.cli", "serve", "--config", str(place.folder / "gpufair.toml")],
        env=place.environ(), stdout=log, stderr=log, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            until("the service", lambda: (place.state / "service.json").exists() or process.poll() is not None)
            assert process.poll() is None, (place.folder / "serve.log").read_text()
            with Client(state_dir=place.state) as client:
                until("the node", lambda: [n for n in client.nodes() if n.state == "ready"])
            yield place
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            finally:
                process.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as found:
        yield found


@pytest.fixture
def served(place: Place) -> Iterator[Place]:
    with serving(place):
        yield place


def sleeper(client: Client, name: str, user: str, allocation: str) -> Workload:
    launch = {"type": "command", "argv": [sys.executable, "-c", "import time; time.sleep(300)"]}
    return client.submit(
        launch, id=f"{name}-0001", name=name, user=user, allocation=allocation, gpus=1, min_runtime_s=600, kind="batch"
    )


def test_an_operators_day(served: Place) -> None:
    """Submit, look, ask why, change budgets, cordon, stop: each command against the real thing."""
    with Client(state_dir=served.state) as client:
        first = sleeper(client, "train", "ria", "language/digits")
        until("train to run", lambda: client.workload(first.id).state == "running")
        second = sleeper(client, "sweep", "ben", "vision")
        assert second.state == "queued"
        # The same submission again is the same workload.
        assert sleeper(client, "sweep", "ben", "vision").id == second.id
        listed = {w.name: w.state for w in client.workloads()}
        assert listed == {"train": "running", "sweep": "queued"}

        status = served.json("status")
        assert (status["gpus"], status["counts"]["running"], status["mode"]) == ({"total": 1, "free": 0}, 1, "shared")
        assert "0 free of 1 on 1 node" in served.gpufair("status").stdout
        doctor = served.json("doctor")
        assert doctor["healthy"], doctor

        (queued,) = served.json("queue")["workloads"]
        assert (queued["id"], queued["position"]) == (second.id, 1)
        assert "sweep" in served.gpufair("queue").stdout

        why = served.json("why", "swee")
        assert why["sentence"]
        assert [h["workload"] for h in why["holders"]] == [first.id]
        assert why["holders"][0]["until_s"] == client.workload(first.id).protected_until_s
        told = served.gpufair("why", "sweep").stdout
        assert "sweep (sweep-00) is queued, 1st of 1." in told
        # The same sentence, with its moments in local time. (Its metrics have moved on since.)
        assert all(part in told for part in re.split(r"[-\d]+ [:\d]+(?:\.\d+)?Z|m [\d.]+", why["sentence"]))
        assert "Z. " not in told
        assert "The GPUs are held by" in told
        served.gpufair("why", "train")
        # It asks for something else, and keeps its id and its place; what runs is not touched.
        amended = served.json("amend", "sweep", "--min-runtime", "5m")
        assert (amended["id"], amended["min_runtime_s"], amended["submitted_s"]) == (second.id, 300, second.submitted_s)
        assert "it is running" in served.gpufair("amend", "train", "--gpus", "0", code=1).stderr
        toured = served.gpufair("tour").stdout
        assert "This lab has no week yet: its record begins" in toured
        assert "asked for 1 GPU with 5 min of protection instead; vision pays" in toured

        assert "running" in served.gpufair("sessions", "list").stdout
        assert [w["name"] for w in served.json("sessions", "list", "--user", "ben")["workloads"]] == ["sweep"]
        assert [p["name"] for p in served.json("kernels", "list")["profiles"]] == ["small"]
        assert "Small" in served.gpufair("kernels", "list").stdout

        check_budgets(served)
        check_nodes(served)
        check_foresight(served, first, second)

        # What a batch workload cannot do is refused in the service's words.
        refused = served.gpufair("sessions", "checkpoint", "train", code=1)
        assert refused.stderr.startswith("gpufair: ")
        assert served.json("sessions", "stop", "train")["id"] == first.id
        until("sweep to run", lambda: client.workload(second.id).state == "running")
        served.gpufair("sessions", "stop", "sweep")
        until("the end of all", lambda: all(not w.live for w in client.workloads()))
        assert client.conservation()["error_gpu_ms"] == 0
        assert {"Submitted", "Start"} <= {record["kind"] for record in client.timeline()}
        assert "no live workloads" in served.gpufair("sessions", "list").stdout
        assert "cancelled" in served.gpufair("sessions", "list", "--all").stdout
        assert served.gpufair("why", "nothing-like-it", code=4).stderr.count("\n") == 1


def check_budgets(served: Place) -> None:
    """A good file shows what it changes; a bad one names its line and changes nothing."""
    before = {a["path"]: a for a in served.json("budgets", "show")["allocations"]}
    assert (before["language/digits"]["gpus_held"], before["vision"]["gpus_queued"]) == (1, 1)
    assert "language/digits" in served.gpufair("budgets", "show").stdout
    file = served.folder / "new.toml"
    file.write_text(BUDGETS.replace('"vision"\nshare = 1', '"vision"\nshare = 3'))
    applied = served.json("budgets", "apply", str(file))
    assert {"path": "vision", "change": "changed", "field": "share", "before": "1", "after": "3"} in applied["changes"]
    assert "changes nothing" in served.gpufair("budgets", "apply", str(file)).stdout
    for text, line, says in (
        (BUDGETS.replace('"vision"\nshare = 1', '"vision"\nshare = -1'), 8, "negative"),
        (BUDGETS + '[[allocation]]\npath = "vision"\n', 11, "vision"),
        (BUDGETS.replace('"ben"', '"bem"'), 9, "bem"),
    ):
        file.write_text(text)
        refused = served.gpufair("budgets", "apply", str(file), code=1).stderr
        assert f"new.toml:{line}:" in refused, refused
        assert says in refused
        assert "nothing has changed" in refused
    after = {a["path"]: a["share"] for a in served.json("budgets", "show")["allocations"]}
    assert after["vision"] == "3"


def check_nodes(served: Place) -> None:
    """A cordon is seen at once."""
    assert "is cordoned: nothing new starts there; 1 workload" in served.gpufair("nodes", "cordon", "node-a").stdout
    (node,) = served.json("nodes", "list")["nodes"]
    assert (node["state"], node["cordoned"], node["gpus"]) == ("cordoned", True, 1)
    assert "takes workloads again" in served.gpufair("nodes", "uncordon", "node-a").stdout
    assert "ready" in served.gpufair("nodes", "list").stdout
    assert "node-a" in served.gpufair("nodes", "cordon", "node-x", code=4).stderr


def check_foresight(served: Place, first: Workload, second: Workload) -> None:
    """What will be, what was, and what may be changed about it."""
    steps = served.json("preview", "--hours", "1")["steps"]
    (start,) = [step for step in steps if step["what"] == "starts" and step["workload"] == second.id]
    assert first.id in {step["workload"] for step in steps if step["at_s"] <= start["at_s"]}
    assert "starts" in served.gpufair("preview").stdout
    assert "language/digits" in served.gpufair("why", "language/digits").stdout
    (pool,) = served.json("pyramid")["pools"]
    assert pool["occupancy"]["kept_gpu_s"] > 0
    assert pool["utilization"]["ratio"] is None  # virtual GPUs: unknown, not 0
    assert "no node has measured it" in served.gpufair("pyramid").stdout
    (pool,) = served.json("budgets", "delivered", "--since", "1h")["pools"]
    assert {a["path"] for a in pool["allocations"] if a["charged_gpu_s"]} == {"language", "language/digits"}
    # The operator here is a member of nothing, so it is asked whom to coach for.
    assert "is not a member" in served.gpufair("coach", "--allocation", "vision", code=1).stderr
    drained = served.json("node", "drain", "node-a", "--deadline", "1m")
    assert [one["workload"] for one in drained["protected"]] == [first.id]
    assert "--force cuts protections" in served.gpufair("nodes", "drain", "node-a", "--deadline", "1m").stdout
    served.gpufair("nodes", "uncordon", "node-a")
    assert "which waits and could use them, comes first" in served.gpufair("extend", "train", "1h", code=1).stderr


def test_a_session_is_saved_parked_and_resumed(served: Place) -> None:
    """``--wait`` returns when it really happened, with a real kernel."""
    argv = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
    with Client(state_dir=served.state) as client:
        launch = {"type": "kernel", "argv": argv, "cwd": str(served.folder)}
        made = client.submit(
            launch, id="kernel-0001", profile="small", user="ria", notebook=str(served.folder / "digits.ipynb")
        )
        until("the kernel", lambda: client.workload(made.id).serving)
        saved = served.gpufair("sessions", "checkpoint", "digits.ipynb", "--wait").stdout
        assert saved.startswith("digits.ipynb (kernel-0) is saved: ")
        assert len(client.checkpoints(made.id)) == 1
        assert "whole" in served.gpufair("checkpoints", "verify", "kern").stdout
        tar = served.folder / "away.tar"
        assert "is in" in served.gpufair("checkpoints", "export", "kern", str(tar)).stdout
        assert "--force" in served.gpufair("checkpoints", "export", "kern", str(tar), code=1).stderr
        served.gpufair("checkpoints", "export", "kern", str(served.folder / "none.tar"), "--id", "no-such", code=4)
        (folder,) = (served.state / "checkpoints" / "ria").iterdir()
        with tarfile.open(tar) as packed:
            packed.extractall(served.folder / "away", filter="data")
        key = bytes.fromhex(Secrets.load(served.state).checkpoint_key("ria"))
        (away,) = checkpoint.listing(str(served.folder / "away"), key)
        assert checkpoint.verify(str(served.folder / "away"), away.id, key).sequence == 1
        assert served.json("checkpoints", "prune", "kern") == {"removed": []}
        for file in (folder / "buffers").iterdir():
            file.write_bytes(file.read_bytes() + b"x")
        damaged = served.gpufair("checkpoints", "verify", "kern", code=1)
        assert "damaged" in damaged.stdout
        served.gpufair("sessions", "checkpoint", "digits.ipynb", "--wait")
        parked = served.json("sessions", "park", "kern", "--wait")
        assert (parked["state"], parked["leases"], parked["id"]) == ("parked", [], made.id)
        assert "parked" in served.gpufair("sessions", "list", "--state", "parked").stdout
        resumed = served.gpufair("sessions", "resume", "kern", "--wait")
        assert resumed.stdout == "digits.ipynb (kernel-0) is running, idle\n"
        assert "digits.ipynb: " in resumed.stderr
        back = client.workload(made.id)
        assert (back.starts, back.incarnation, back.restore_offered) == (2, 2, False)
        assert client.connection(made.id).key
        served.gpufair("sessions", "stop", "kern")
        until("its end", lambda: not client.workload(made.id).live)


def test_the_event_stream_of_the_real_service(served: Place) -> None:
    """A listing, its end, then changes: the order that Jupyter relies on."""
    with Client(state_dir=served.state) as client, Client(state_dir=served.state) as listener:
        events = listener.events(holder=True)
        assert isinstance(next(events), Resync)
        assert next(events) == Announced(Announcements((), (), more=False))
        assert next(events) == Synced(frozenset())
        made = sleeper(client, "train", "ria", "language/digits")
        states: list[str] = []
        for event in events:
            assert not isinstance(event, Disconnected), event.reason
            if isinstance(event, WorkloadEvent) and event.workload.id == made.id:
                states.append(event.workload.state)
                if event.workload.state == "running":
                    client.stop(made.id)
                if event.workload.state == "ended":
                    break
        assert [state for at, state in enumerate(states) if states[at - 1 : at] != [state]][-1] == "ended"
        assert {"starting", "running"} <= set(states)
        events.close()


def test_a_submission_that_cannot_be_is_refused_with_its_class(served: Place) -> None:
    """The core's error arrives as it was, through two processes."""
    with Client(state_dir=served.state) as client:
        for spec, error in (
            ({"allocation": "nowhere"}, "UnknownAllocation"),
            ({"allocation": "vision"}, "NotAMember"),
            ({"min_runtime_s": 86400.0 * 2}, "MinRuntimeTooLong"),
            ({"gpus": 64}, "NeverFits"),
        ):
            wanted = {"user": "ria", "allocation": "language/digits", "gpus": 1, "min_runtime_s": 60.0, **spec}
            with pytest.raises(Refused) as caught:
                client.submit({"type": "command", "argv": ["true"]}, **wanted)
            assert caught.value.error == error


def test_a_service_that_ended_is_exit_3(place: Place) -> None:
    """Before, there was none; while it runs, it is found; after SIGTERM, the next step is told again."""
    assert "gpufair serve" in place.gpufair("status", code=3).stderr
    endpoint = ensure_service(config=place.folder / "gpufair.toml", state_dir=place.state, wait_s=WAIT_S)
    assert ensure_service(state_dir=place.state) == endpoint
    assert place.json("status")["mode"] == "embedded"
    assert endpoint.pid is not None
    # Its lock keeps a second service out, with a sentence.
    refused = place.gpufair("serve", "--config", str(place.folder / "gpufair.toml"), code=1).stderr
    assert str(place.state) in refused
    os.kill(endpoint.pid, signal.SIGTERM)
    until("its end", lambda: not psutil.pid_exists(endpoint.pid or 0))
    told = place.gpufair("queue", "--json", code=3)
    assert told.stdout == ""
    assert json.loads(told.stderr)["error"] == "Unavailable"


def test_a_bad_configuration_reaches_whoever_starts_a_service(place: Place) -> None:
    """Jupyter's user sees the line, not 'timed out'."""
    bad = place.folder / "gpufair.toml"
    bad.write_text(CONFIG.replace("gpus = 1\ngpu_type", "gpus = -1\ngpu_type"))
    with pytest.raises(StartFailed, match=r"gpufair.toml, line 10: gpus = -1"):
        ensure_service(config=bad, state_dir=place.state, wait_s=WAIT_S)
    refused = place.gpufair("serve", "--config", str(bad), code=2).stderr
    assert refused.count("\n") == 1
    assert "line 10" in refused
    with pytest.raises(Exception, match="none is running"):
        from_folder(place.state)
