"""Reports survive a full disk, a torn line and whoever listens or doesn't."""

import errno
import os

import pytest

from gpufair.node.reports import FILE, ReportLog, read


@pytest.fixture
def log(tmp_path):
    log = ReportLog(tmp_path)
    yield log
    log.close()


def test_reports_are_numbered_kept_and_forgotten_when_acknowledged(tmp_path, log):
    heard = []
    log.listeners.append(lambda: heard.append(len(log.after(0))))
    log.add("serving", {"generation": 1})
    log.add("activity", {"busy": True})
    assert [r["n"] for r in read(tmp_path)] == [1, 2]
    assert [r["kind"] for r in log.after(1)] == ["activity"]
    log.acknowledged(1)
    assert [r["n"] for r in log.after(0)] == [2]
    assert heard == [1, 2]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_numbers_go_on_where_a_killed_writer_stopped(tmp_path):
    first = ReportLog(tmp_path)
    first.add("serving", {})
    first.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"n": 2, "kind": "activ')  # torn by the kill
    second = ReportLog(tmp_path)
    second.add("released", {"busy": False})
    second.close()
    assert [(r["n"], r["kind"]) for r in read(tmp_path)] == [(1, "serving"), (2, "released")]


def test_a_full_disk_delays_reports_and_loses_none(tmp_path, log, monkeypatch):
    full = True
    write = os.write

    def limited(fd, data):
        if full:
            if len(data) > 10:
                return write(fd, data[:10])  # as a nearly full disk does
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", limited)
    log.add("checkpoint_failed", {"reason": "disk full"})
    log.add("activity", {"busy": False})
    assert read(tmp_path) == []
    assert len(log.after(0)) == 2, "a listener gets them all the same"
    full = False
    log.add("released", {"busy": False})
    assert [(r["n"], r["kind"]) for r in read(tmp_path)] == [(1, "checkpoint_failed"), (2, "activity"), (3, "released")]
