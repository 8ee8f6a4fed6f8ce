"""What a user or operator can get wrong: one clear line, an exit code, no traceback, nothing changed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpufair.client import Client, Refused
from tests.integration.faults.rig import CONFIG, NODE, wait_until
from tests.integration.jupyter.real import BUDGETS, end_all
from tests.integration.jupyter.server import Server

GOOD = CONFIG.format(linger="60s", grace="5s", nodes=NODE.format(1))


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUFAIR", "XDG_", "JUPYTER"))}
    return (
        kept
        | {"HOME": str(home), "GPUFAIR_STATE_DIR": str(home / "state"), "GPUFAIR_CONFIG": str(home / "g.toml")}
        | more
    )


def write(home: Path, config: str = GOOD, budgets: str = BUDGETS) -> None:
    (home / "g.toml").write_text(config)
    (home / "budgets.toml").write_text(budgets)


def gpufair(home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpufair.cli", *args],
        env=environment(home, **more), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """It failed, and said why in a sentence."""
    said = (done.stderr + done.stdout).strip()
    assert done.returncode != 0, said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if " INFO " not in line]
    assert len(lines) <= 3, said
    for word in words:
        assert word in said, (word, said)


@contextmanager
def service(home: Path) -> Iterator[Client]:
    """A service in the foreground, as an operator runs it; and its agents are gone afterwards."""
    process = subprocess.Popen([sys.executable, "-m", "gpufair.cli", "serve", "--embedded"], env=environment(home),
                               stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        wait_until((home / "state" / "service.json").exists, 30, "the service is there")
        with Client(state_dir=home / "state") as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[profile]]", "[[profile"), ["g.toml", "line"]),
        (('linger = "60s"', 'linger = "60 parsecs"'), ["linger", "60 parsecs", "line"]),
        (("gpus = 1\ngpu_type", "gpus = -1\ngpu_type"), ["gpus", "line"]),
        (('name = "node-1"', 'nam = "node-1"'), ["nam", "line"]),
        (('"language/digits"', '"language/digit"'), ["language/digit", "language/digits"]),
        (('budgets = "budgets.toml"', 'budgets = "nowhere.toml"'), ["nowhere.toml"]),
        (('users = ["ria", "ben"]', 'users = ["ria", "r/ia"]'), ["r/ia"]),
    ],
)
def test_config(tmp_path: Path, change: tuple[str, str], words: list[str]) -> None:
    assert change[0] in GOOD
    write(tmp_path, GOOD.replace(*change, 1))
    refused(gpufair(tmp_path, "serve"), *words)
    assert not (tmp_path / "state" / "service.json").exists()


BAD_BUDGETS = [
    ('[[allocation]]\npath = "a"\nshare = -1\n', ["share", "line 3"]),
    ('[[allocation]]\npath = "a"\n[[allocation]]\npath = "a"\n', ["'a'", "line 4"]),
    ('[[allocation]]\npath = "a"\nmembers = ["nobody"]\n', ["nobody", "line 3"]),
    ("[[allocation]\n", ["line 1"]),
    ('[[allocation]]\npath = "a"\nshare = "many"\n', ["share", "line 3"]),
]


@pytest.mark.parametrize(("text", "words"), BAD_BUDGETS)
def test_budgets_at_the_start(tmp_path: Path, text: str, words: list[str]) -> None:
    write(tmp_path, GOOD.partition("[[profile]]")[0], text)
    refused(gpufair(tmp_path, "serve"), "budgets.toml", *words)


def test_budgets_while_it_runs(tmp_path: Path) -> None:
    """Through the command and through PUT: refused with the line; those in force stay."""
    write(tmp_path)
    with service(tmp_path) as client:
        before = [one.path for one in client.budgets().allocations]
        for number, (text, words) in enumerate(BAD_BUDGETS):
            path = tmp_path / f"bad{number}.toml"
            path.write_text(text)
            refused(gpufair(tmp_path, "budgets", "apply", str(path)), *words)
            with pytest.raises(Refused):
                client.apply_budgets(text.encode())
        refused(gpufair(tmp_path, "budgets", "apply", str(tmp_path / "none.toml")), "none.toml")
        with pytest.raises(Refused):
            client.apply_budgets(b"\xff\xfe\x00")
        assert [one.path for one in client.budgets().allocations] == before
        # And a second service for the folder.
        refused(gpufair(tmp_path, "serve"), "another service", "--state-dir")
        assert client.status().nodes == 1


def test_port_in_use(tmp_path: Path) -> None:
    write(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(gpufair(tmp_path, "serve", "--port", port), "cannot listen", port)
        refused(gpufair(tmp_path, "serve", "--host", "no.such.host.invalid"), "no.such.host.invalid")


def test_a_state_folder_that_cannot_be_used(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "file").write_text("")
    refused(gpufair(tmp_path, "serve", GPUFAIR_STATE_DIR=str(tmp_path / "file" / "state")), "state")
    refused(gpufair(tmp_path, "serve", GPUFAIR_STATE_DIR=str(tmp_path / "file")), "file")
    refused(gpufair(tmp_path, "serve", GPUFAIR_STATE_DIR="/proc/gpufair"), "/proc/gpufair")


def test_a_damaged_journal(tmp_path: Path) -> None:
    """It is named, and not touched."""
    write(tmp_path)
    with service(tmp_path):
        pass
    journal = tmp_path / "state" / "journal.sqlite"
    spoiled = b"this is no database" * 1000
    for path in tmp_path.glob("state/journal.sqlite*"):
        path.unlink()
    journal.write_bytes(spoiled)
    refused(gpufair(tmp_path, "serve"), "journal")
    assert journal.read_bytes() == spoiled


def test_a_jupyter_server_with_a_bad_config_says_so(tmp_path: Path) -> None:
    """The page works, plain kernels work; the reason stands where the front end asks, and mending the file is enough."""
    write(tmp_path, GOOD.replace('linger = "60s"', 'linger = "60 parsecs"'))
    state = tmp_path / "gpufair"
    with Server(
        tmp_path / "home", state, env={"GPUFAIR_CONFIG": str(tmp_path / "g.toml"), "GPUFAIR_USER": "ria"}
    ) as server:

        def told() -> str | None:
            problem = str(server.get("/gpufair/status")["problem"])
            return problem if "60 parsecs" in problem else None

        assert "Traceback" not in wait_until(told, 20, "the problem is told")
        code, answer = server.call("POST", "/api/sessions", {
            "path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "gpufair-1gpu"}})  # fmt: skip
        assert code >= 400
        assert "60 parsecs" in answer["message"], answer
        plain = server.new("plain.ipynb", "python3")
        assert server.call("DELETE", f"/api/kernels/{plain}")[0] == 204
        write(tmp_path)
        try:
            server.kernels_ready()
            kernel = server.new("b.ipynb")
            server.wait_for(kernel, "running", 30)
            assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
        finally:
            if (state / "service.json").exists():
                end_all(state)
