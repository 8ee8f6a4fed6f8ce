"""The file of the pool that outlives kernels: who believes what in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpufair.client.errors import Unavailable
from gpufair.cpu import resident
from gpufair.cpu.errors import PoolMissing
from gpufair.node.files import write_json


@pytest.fixture
def living(tmp_path: Path) -> resident.Resident:
    """One whose process is this one, as its file says."""
    began = resident.began(os.getpid())
    assert began is not None
    made = resident.Resident(os.getpid(), began, 1.0, "tls://127.0.0.1:1", 2, 1 << 30, "KEY", "CERTIFICATE")
    write_json(resident.place(tmp_path, "json"), vars(made))
    return made


def test_a_living_pool_is_found_and_shows_no_key(living: resident.Resident, tmp_path: Path) -> None:
    """Logs and --json are read by others."""
    assert resident.found(tmp_path) == living
    assert "KEY" not in f"{living!r}{resident.told(living)}"
    assert "CERTIFICATE" not in f"{living!r}{resident.told(living)}"


def test_the_file_of_a_dead_pool_is_none(living: resident.Resident, tmp_path: Path) -> None:
    """Its process id may have been given to another process since: stopping that one would be worse than anything."""
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    file = resident.place(tmp_path, "json")
    for dead in (replace(living, began=living.began + "0"), replace(living, pid=over.pid), replace(living, pid=0)):
        write_json(file, vars(dead))
        assert resident.found(tmp_path) is None
        assert resident.stop(tmp_path) is None
    nobody = json.dumps(vars(living) | {"began": None, "pid": over.pid})
    for text in ("", "{}", "[1]", '{"pid": 1}', nobody):
        file.write_text(text)
        assert resident.found(tmp_path) is None


def test_a_file_that_others_could_write_is_refused(living: resident.Resident, tmp_path: Path) -> None:
    """A pool of theirs would be sent the notebook's variables, and could answer with anything."""
    resident.place(tmp_path, "json").chmod(0o666)
    with pytest.raises(Unavailable, match="chmod 600"):
        resident.found(tmp_path)


def test_a_process_that_ended_and_was_not_waited_for_has_ended() -> None:
    """In a container nobody may wait for it."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert resident.began(child.pid) is None
    finally:
        child.communicate()


def test_a_dashboard_needs_what_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before a pool is started, with the extra to install."""
    monkeypatch.setattr("gpufair.cpu.dashboard.find_spec", lambda name: None)
    with pytest.raises(PoolMissing, match=r"jupyter-gpufair\[dashboard\]"):
        resident.start(tmp_path, pages=True)
    assert not resident.place(tmp_path, "log").exists()
