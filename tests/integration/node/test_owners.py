"""Workloads run as the accounts of their owners, under an agent that is root; what they make up moves nobody else.

The accounts are numbers that this machine has no names for, so nothing of it is changed.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.node.logs import read_log
from gpufair.node.processes import find, identify
from gpufair.node.record import executions
from gpufair.node.tunnel import fingerprint
from tests.integration.node import opened
from tests.integration.node.fake_service import TOKEN
from tests.integration.node.rig import Rig, until

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "gpufair-agent.service"
RIA, BO = 64_801, 64_802
READS = """
import os
def reads(path):
    try:
        return len(open(path, 'rb').read()) if os.path.isfile(path) else sorted(os.listdir(path))
    except PermissionError:
        return 'closed'
def kills(pid):
    try:
        return os.kill(pid, 9)
    except PermissionError:
        return 'not ours'
def connects(path):
    import socket
    try:
        return socket.socket(socket.AF_UNIX).connect(path)
    except PermissionError:
        return 'closed'
"""

if problem := opened.impossible():
    if os.environ.get("GPUFAIR_REQUIRE_ALL"):
        pytest.fail(problem)
    pytest.skip(problem, allow_module_level=True)


class Owned(Rig):
    """A node whose agent is root. ``root`` is the service's state folder, open to pass through."""

    def __init__(self, base: Path) -> None:
        super().__init__(base / "s")
        self.within = [*opened.opened(base), *hardened()]
        lines = ["[users]", "boss = { uid = 0 }", "daemon = { uid = 2 }"]
        for user, uid in (("ria", RIA), ("bo", BO)):
            home = base / user
            home.mkdir(mode=0o700)
            os.chown(home, uid, uid)
            lines.append(f'{user} = {{ uid = {uid}, home = "{home}" }}')
        (base / "owners.toml").write_text("\n".join([*lines, "[environment]", 'LAB = "here"']))
        (base / "token").touch(0o600)
        (base / "token").write_text(TOKEN)

    def start_agent(self) -> None:
        """As an operator does."""
        base, url = self.root.parent, json.loads((self.root / "service.json").read_text())["url"]
        command = [*self.within, sys.executable, "-m", "gpufair.cli", "agent", "n1", "--service", url, "--gpus", "2"]
        command += ["--token-file", str(base / "token"), "--owners", str(base / "owners.toml"), "--folder", str(self.folder)]
        command += ["--host", "127.0.0.1", "--listen", "127.0.0.1"]
        with (base / "agent.log").open("ab") as log:
            environment = {**os.environ, "GPUFAIR_SERVICE_TOKEN": "secret", "JUPYTER_TOKEN": "secret"}
            self.agent = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def begin(self, user: str, workload: str, **more: Any) -> dict[str, Any]:
        """Start a kernel; its connection."""
        incarnation = more.get("incarnation", 1)
        self.start(workload, user=user, checkpoint_dir=str(self.checkpoints(user, workload)), **more)
        connection: dict[str, Any] = self.service.wait(workload, "serving", incarnation=incarnation).body["connection"]
        return connection

    def checkpoints(self, user: str, workload: str) -> Path:
        return self.root / "checkpoints" / user / workload

    def own(self, workload: str, incarnation: int = 1) -> Path:
        """The folder of its supervisor."""
        return self.dir(workload, incarnation) / "own"

    def status(self, workload: str, incarnation: int = 1) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.own(workload, incarnation) / "status.json").read_text())
        return status

    def cell(self, connection: dict[str, Any], code: str) -> None:
        reply = self.client(connection).execute_interactive(code, timeout=30, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]


def hardened() -> list[str]:
    """A command that takes from root what the unit for systemd takes from it."""
    unit = configparser.RawConfigParser(strict=False)
    unit.read(UNIT)
    kept = unit["Service"]["CapabilityBoundingSet"].split()
    assert unit["Service"]["NoNewPrivileges"] == "yes"
    return ["setpriv", "--no-new-privs", f"--bounding-set=-all,{','.join('+' + one.lower().removeprefix('cap_') for one in kept)}"]


@pytest.fixture
def node() -> Iterator[Owned]:
    base = Path(tempfile.mkdtemp(prefix="gpufair-owners-", dir="/tmp"))  # pytest's own is closed to others
    base.chmod(0o711)
    made = Owned(base)
    try:
        made.service.start()
        made.start_agent()
        made.service.wait_hello(1, 60)
        yield made
    finally:
        for own in made.folder.glob("workloads/*/own/status.json"):
            shutil.copy(own, own.parent.parent)  # where the rig looks for what it has to end
        made.close()
        shutil.rmtree(base, ignore_errors=True)


def owners_of(folder: Path) -> set[tuple[int, int]]:
    """(user, permissions of others) of all there is in a folder."""
    about = [path.lstat() for path in (folder, *folder.rglob("*"))]
    return {(one.st_uid, stat.S_IMODE(one.st_mode) & 0o077) for one in about}


def test_two_owners_on_one_node_are_kept_apart(node: Owned) -> None:
    """Each is itself, with nothing of root's; neither gets at the other, nor at the agent; saved work comes back."""
    ria, bo = node.begin("ria", "r", gpus=1), node.begin("bo", "b", gpus=1)
    for connection, uid, user in ((ria, RIA, "ria"), (bo, BO, "bo")):
        node.cell(connection, "import os\nx = 'of ' + os.environ['USER']\nmask = os.umask(0o077)\n" + READS)
        assert node.ask(connection, "os.getresuid() + os.getresgid()") == str((uid,) * 6)
        assert node.ask(connection, "os.getgroups(), mask") == str(([uid], 0o077))
        assert node.ask(connection, "'NoNewPrivs:\\t1' in open('/proc/self/status').read()") == "True"
        home = str(node.root.parent / user)
        assert node.ask(connection, "[os.environ[one] for one in ('HOME', 'LOGNAME', 'LAB')]") == str([home, user, "here"])
        assert node.ask(connection, "[one for one in os.environ if 'TOKEN' in one or one == 'GPUFAIR_STATE_DIR']") == "[]"
        files = node.ask(connection, "[os.readlink('/proc/self/fd/' + one) for one in os.listdir('/proc/self/fd')[:-1]]")
        assert "/dev/null" in files
        assert not [name for name in ("supervisor.lock", "agent.l", "reports") if name in files], "a descriptor of another's"
    node.service.command("save", "b")
    node.service.wait("b", "checkpointed")

    # Each is reached from other machines with a certificate of its own: none can be taken for another, or for the node.
    assert len({ria["via"]["fingerprint"], bo["via"]["fingerprint"], fingerprint(node.folder / "node.crt")}) == 3

    closed = [node.own("b"), node.folder / "node.key", node.root / "records" / "b", node.root / "checkpoints" / "bo", node.folder / "agent-config.json"]
    assert node.agent is not None
    theirs = [node.status("b")["pid"], node.status("b")["child"][0], node.agent.pid]
    for path in (*closed, node.dir("b") / "start.json", node.dir("b"), node.folder / "workloads", node.root / "records"):
        assert node.ask(ria, f"reads({str(path)!r})") == "'closed'", path
    for pid in theirs:
        assert node.ask(ria, f"kills({pid})") == "'not ours'"
        assert node.ask(ria, f"reads('/proc/{pid}/environ')") == "'closed'"
    for link in (node.dir("b") / "link", node.dir("r") / "link"):
        assert node.ask(ria, f"connects({os.path.relpath(link, node.root)!r})") == "'closed'"
    for folder in (node.own("b"), node.root / "records" / "b", node.root / "checkpoints" / "bo"):
        assert owners_of(folder) == {(BO, 0)}

    node.preempt("r", 30)
    saved = node.service.wait("r", "checkpointed").body
    node.service.wait("r", "released")
    again = node.begin("ria", "r", incarnation=2, gpus=1, restore=saved["id"], next_sequence=saved["sequence"] + 1)
    assert node.ask(again, "x, os.getuid()") == str(("of ria", RIA))
    assert executions(node.root / "records" / "r")[0]["status"] == "ok"


def test_whoever_is_killed_others_go_on_and_nothing_is_left(node: Owned) -> None:
    """An agent adopts what runs as others; what a supervisor leaves is ended, whatever its owner wrote down."""
    ria, bo = node.begin("ria", "r", gpus=1), node.begin("bo", "b", gpus=1)
    node.cell(ria, "x = 1")
    until((node.dir("r") / "acknowledged").exists)
    node.kill_agent()
    node.cell(ria, "x += 1")
    node.start_agent()
    assert {("r", 1), ("b", 1)} <= set(node.service.wait_hello(2, 60).running)
    assert node.ask(ria, "x") == "2"

    # Ria claims that Bo's kernel is hers, and has links where the agent reads and writes.
    victim, precious = node.status("b")["child"], node.root / "precious"
    precious.write_text("precious")
    own, records = node.own("r"), node.root / "records" / "r"
    pid = node.status("r")["pid"]
    node.cell(
        ria,
        f"""
import json, os
os.chdir({str(own)!r})
status = json.load(open('status.json')) | {{'child': {victim!r}, 'generation': 9}}
os.unlink('status.json')
json.dump(status, open('status.json', 'w'))
os.rename('reports.jsonl', 'kept')
os.symlink({str(precious)!r}, 'reports.jsonl')
os.symlink({str(precious)!r}, {str(records / "iopub-1-9.jsonl")!r})
os.symlink({str(precious)!r}, {str(records / "log-1-0.txt")!r})
""",
    )
    mine = node.processes("r")
    assert mine
    os.kill(pid, signal.SIGKILL)
    node.service.wait("r", "released")
    assert precious.read_text() == "precious"
    assert identify(victim[0]) is not None
    assert node.ask(bo, "1 + 1") == "2"
    assert not [one for one in mine if identify(one.pid) == one]
    assert read_log(records, 0, 0, 1000).text == ""
    assert executions(records)

    tag = json.loads((node.dir("b") / "start.json").read_text())["tag"]
    node.service.command("stop", "b")
    node.service.wait("b", "released")
    assert not find(None, tag)
    assert node.begin("bo", "next", gpus=2), "all GPUs are free again"


def test_whom_no_account_belongs_to_is_refused_and_told_why(node: Owned) -> None:
    """Never is anything run as root, and the node goes on."""
    for user, said in (("no-such-name", "has no account on this machine"), ("boss", "no account of a person"), ("daemon", "user id 2")):
        folder = node.checkpoints(user, user)
        node.start(user, user=user, checkpoint_dir=str(folder))
        reason = node.service.wait(user, "start_failed").body["reason"]
        assert said in reason
        assert "ask" in reason
        assert not node.dir(user).exists()
        assert not folder.parent.exists()
