"""A pod as Kubernetes runs it: its agent is process 1, the root is read-only, and the account has no name."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpufair.node.pod_exits import PodExit
from tests.integration.node import container, opened
from tests.integration.node.pod_rig import PodRig
from tests.integration.node.rig import until

LOOK = """{
    "user": __import__("getpass").getuser(),
    "uid": __import__("os").getuid(),
    "home": __import__("os").path.expanduser("~"),
    "history": str(get_ipython().history_manager.hist_file),
    "temporary": __import__("tempfile").gettempdir(),
    "root": __import__("os").access("/", 2),
    "first": open("/proc/1/cmdline").read().split("\\0")[1:4],
}""".replace("\n", "")
# A daemon that leaves its parent, and ends: in a container its entry stays until the first process looks after it.
ORPHANS = """
import subprocess, time
for _ in range(3):
    subprocess.run(["sh", "-c", "(sleep 0.2) & exit 0"])
time.sleep(1.0)
"""
ZOMBIES = """[entry for entry in __import__("os").listdir("/proc") if entry.isdigit() and
 open(f"/proc/{entry}/stat").read().rpartition(") ")[2][0] == "Z"]""".replace("\n", "")


class ContainedRig(PodRig):
    """Only what a pod would have mounted for writing can be written to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, grace_s=30.0)
        mounted = [self.folder, root / "records" / "w", root / "checkpoints" / "w"]
        for path in mounted:
            path.mkdir(parents=True)
            os.chown(path, container.NOBODY, container.NOBODY)
        (root / "passages").mkdir()
        self.within = [*opened.opened(root / "passages"), *container.contained(mounted)]
        self.environment = {"HOME": "/", "TMPDIR": "", "USER": "", "LOGNAME": "", "XDG_STATE_HOME": ""}

    @property
    def first(self) -> psutil.Process:
        """Process 1 of the container."""
        assert self.agent is not None
        (found,) = psutil.Process(self.agent.pid).children()
        return found

    def terminate(self) -> None:
        self.first.send_signal(signal.SIGTERM)


@pytest.fixture
def rig() -> Iterator[ContainedRig]:
    if problem := opened.impossible() or container.impossible():
        if os.environ.get("GPUFAIR_REQUIRE_ALL"):
            pytest.fail(problem)
        pytest.skip(problem)
    root = Path(tempfile.mkdtemp(prefix="gpufair-pod-"))  # pytest's own are closed to others
    root.chmod(0o755)
    made = ContainedRig(root)
    try:
        made.service.start()
        made.start_agent()
        made.service.wait_hello(1)
        yield made
    finally:
        if made.agent is not None and made.agent.poll() is None:
            made.agent.kill()  # and with it all that is in the container
            made.agent.wait()
        made.hang_up()
        made.service.stop()
        shutil.rmtree(root, ignore_errors=True)


def serve(rig: ContainedRig) -> dict[str, object]:
    rig.start("w", gpus=1, launch={"cwd": "/home/nobody-here"})
    found: dict[str, object] = rig.service.wait("w", "serving", timeout_s=60).body["connection"]
    return found


def test_a_session_in_a_container(rig: ContainedRig) -> None:
    """Libraries find a home, orphans are reaped, and SIGTERM to process 1 saves the session."""
    connection = serve(rig)
    seen = ast.literal_eval(rig.ask(connection, LOOK))
    assert seen == {
        "user": f"uid-{container.NOBODY}",
        "uid": container.NOBODY,
        "home": f"{rig.folder}/home",
        "history": f"{rig.folder}/home/.ipython/profile_default/history.sqlite",
        "temporary": f"{rig.folder}/tmp",
        "root": False,
        "first": ["-P", "-m", "gpufair.node.pod"],
    }
    client = rig.client(connection)
    assert client.execute_interactive(ORPHANS, timeout=60)["content"]["status"] == "ok"
    until(lambda: rig.ask(connection, ZOMBIES) == "[]", what="no zombie is left")
    rig.ask(connection, "globals().update(x=41)")
    rig.terminate()
    assert rig.service.wait("w", "checkpointed").body["lost"] == []
    assert rig.service.wait("w", "released").body["busy"] is False
    assert rig.code() == PodExit.IN_ORDER
    assert (rig.root / "checkpoints/w").stat().st_uid == container.NOBODY


def test_all_ends_with_process_1(rig: ContainedRig) -> None:
    """Killed for its memory, or by the kubelet at the end of the grace: nothing in the container goes on."""
    serve(rig)
    first = rig.first
    everyone = [first, *first.children(recursive=True)]
    assert len(everyone) >= 4, "the agent, its supervisor, its kernel"
    first.kill()
    psutil.wait_procs(everyone, 20)
    assert not [one for one in everyone if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert rig.code() != PodExit.IN_ORDER


def test_the_agent_is_killed_inside(rig: ContainedRig) -> None:
    """By what runs beside it, under the same account: the pod ends, and does not pretend that all is well."""
    serve(rig)
    (agent,) = rig.first.children()
    begun = time.monotonic()
    agent.kill()
    assert rig.code() == 128 + signal.SIGKILL
    assert time.monotonic() - begun < 20
