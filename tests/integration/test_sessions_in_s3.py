"""Live sessions whose checkpoints are in S3: the real service, agent, supervisor and kernel, and a real server."""

from __future__ import annotations

import os
import signal
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from gpufair.client import Client
from gpufair.node import checkpoint
from gpufair.node.checkpoint.folder import open_store
from gpufair.service.identity.secrets import Secrets
from tests.integration.s3 import s3_server
from tests.integration.test_cli_service import CONFIG, Place, a_place, serving, until

pytest.importorskip("numpy")
pytest.importorskip("obstore")

ID, SECRET = "kernel-0001", "pLx9-not-to-be-seen-anywhere-7Qz"
NOBODY_THERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
}
IN_S3 = CONFIG + """
[checkpoints]
url = "s3://lab/team"
after_cells = "off"
"""


@contextmanager
def _notebook(client: Client) -> Iterator[BlockingKernelClient]:
    """A client of the kernel as it is now."""
    at = client.connection(ID)
    kernel = BlockingKernelClient()
    info: Any = {"key": at.key, "transport": "tcp"}
    kernel.load_connection_info(info | at.connection)
    kernel.start_channels(hb=False)
    try:
        kernel.wait_for_ready(timeout=30)
        yield kernel
    finally:
        kernel.stop_channels()


def _ran(kernel: BlockingKernelClient, code: str, value: str = "None") -> str:
    reply = kernel.execute_interactive(
        code, user_expressions={"it": value}, timeout=30, output_hook=lambda _: None
    )["content"]
    assert reply["status"] == "ok", reply
    return str(reply["user_expressions"]["it"]["data"]["text/plain"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Place]:
    with s3_server(SECRET), a_place(tmp_path, IN_S3) as place, serving(place):
        yield place


def test_a_session_lives_in_s3(served: Place) -> None:
    """Parked and resumed, killed and restored, listed, verified, exported and pruned; nothing of it in the folder."""
    argv = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
    key = bytes.fromhex(Secrets.load(served.state).checkpoint_key("ria"))
    with Client(state_dir=served.state) as client:
        launch = {"type": "kernel", "argv": argv, "cwd": str(served.folder)}
        client.submit(launch, id=ID, profile="small", user="ria", notebook=str(served.folder / "digits.ipynb"))
        until("the kernel", lambda: client.workload(ID).serving)
        with _notebook(client) as kernel:
            _ran(kernel, "import numpy, os; a = numpy.arange(1 << 20); b = [a, a[1:]]; n = 1")
        served.gpufair("sessions", "park", "kern", "--wait")
        place = f"s3://lab/team/ria/{ID}"
        (parked,) = checkpoint.listing(place, key)
        assert sum(open_store(place).buffers().values()) == parked.stored_bytes > 0
        assert {"a", "b", "n"} <= set(parked.saved)

        served.gpufair("sessions", "resume", "kern", "--wait")
        with _notebook(client) as kernel:
            assert _ran(kernel, "n += 1", "(n, int(a.sum()), b[0] is a, numpy.shares_memory(b[1], a))") == (
                f"(2, {sum(range(1 << 20))}, True, True)"
            )
            served.gpufair("sessions", "checkpoint", "kern", "--wait")
            pid = int(_ran(kernel, "n = 1000", "os.getpid()"))
        os.kill(pid, signal.SIGKILL)
        until("news of its death", lambda: client.workload(ID).kernel_died)
        client.restart(ID)
        until("another kernel", lambda: client.workload(ID).serving)
        client.restore(ID)
        until("its variables", lambda: not client.workload(ID).restore_offered)
        with _notebook(client) as kernel:
            assert _ran(kernel, "", "(n, int(a[-1]))") == f"(2, {(1 << 20) - 1})"

        assert [one["id"] for one in served.json("checkpoints", "list", "kern")["checkpoints"]] == ["000002-2", parked.id]
        verified = served.json("checkpoints", "verify", "kern")["checkpoints"]
        assert [one["ok"] for one in verified] == [True, True]
        tar, away = served.folder / "away.tar", served.folder / "away"
        served.gpufair("checkpoints", "export", "kern", str(tar))
        with tarfile.open(tar) as packed:
            packed.extractall(away, filter="data")
        assert checkpoint.verify(str(away), "000002-2", key).sequence == 2
        assert served.json("checkpoints", "prune", "kern", "--keep", "1") == {"removed": [parked.id]}
        assert [info.id for info in checkpoint.listing(place, key)] == ["000002-2"]

        records = str(client.timeline())
        assert SECRET not in records
        served.gpufair("sessions", "stop", "kern")
        until("its end", lambda: not client.workload(ID).live)
    _check_folder(served)


def _check_folder(served: Place) -> None:
    """No checkpoint is in the state folder, and the key to the bucket in no file that stays."""
    assert not (served.state / "checkpoints").exists()
    assert not list(served.folder.rglob("s3:*"))
    until("the start's own file to go", lambda: not list(served.state.rglob("start.json")))
    for path in served.folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_a_store_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the command line and in the records, without the key to it; the session goes on."""
    for name, value in NOBODY_THERE.items():
        monkeypatch.setenv(name, value)
    argv = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
    with a_place(tmp_path, IN_S3) as place, serving(place), Client(state_dir=place.state) as client:
        client.submit({"type": "kernel", "argv": argv, "cwd": str(tmp_path)}, id=ID, profile="small", user="ria")
        until("the kernel", lambda: client.workload(ID).serving)
        client.checkpoint(ID)
        assert "cannot be reached" in place.gpufair("checkpoints", "list", "kern", code=3).stderr
        failed = until("the failure", lambda: [r for r in client.timeline() if r["kind"] == "CheckpointFailed"])
        assert "s3://lab/team/ria" in str(failed)
        assert SECRET not in str(failed)
        assert client.workload(ID).state == "running"
        with _notebook(client) as kernel:
            assert _ran(kernel, "n = 1", "n") == "1"
