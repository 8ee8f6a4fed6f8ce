"""What a supervisor has to tell: kept in its folder, and streamed to whoever listens."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

from gpufair.node.theirs import read_theirs

FILE = "reports.jsonl"
DURABLE = frozenset({"checkpointed", "released", "exited", "start_failed"})
TERMINAL = frozenset({"released", "exited", "start_failed"})
AGENTS = frozenset({"utilization", "gpu_use"})  # what only an agent says
MOST = 1 << 48  # a number that no supervisor reaches
_log = logging.getLogger(__name__)


class ReportLog:
    """Appends reports, numbered from 1. A full disk loses none: they stay in memory and are written later."""

    def __init__(self, folder: Path, above: int = 0) -> None:
        """``above``: the number of the last report that is known from elsewhere."""
        self._fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        existing = read(folder)
        self._kept: list[dict[str, Any]] = []  # not yet acknowledged by the service, oldest first
        # A writer killed in the middle of a line must not spoil ours too.
        self._unwritten: list[bytes] = [] if _ends_whole(folder / FILE) else [b"\n"]
        self._last = max(existing[-1]["n"] if existing else 0, above)
        self.listeners: list[Callable[[], None]] = []

    def add(self, kind: str, body: dict[str, Any]) -> None:
        """Report this. It is in the file, and for what must not be lost also on the disk, when this returns."""
        self._last += 1
        report = {"n": self._last, "at_s": time.time(), "kind": kind, "body": body}
        self._kept.append(report)
        self._unwritten.append(json.dumps(report).encode() + b"\n")
        self._write(durable=kind in DURABLE)
        for listener in self.listeners:
            listener()

    def _write(self, *, durable: bool) -> None:
        try:
            while self._unwritten:
                data = self._unwritten[0]
                written = os.write(self._fd, data)
                # A torn line is skipped by readers; the whole one follows, on a line of its own.
                if written < len(data):
                    self._unwritten[0] = b"\n" + data
                    return
                del self._unwritten[0]
            if durable:
                os.fsync(self._fd)
        except OSError as err:
            _log.warning("reports cannot be written to the disk now: %s", err)

    def after(self, number: int) -> list[dict[str, Any]]:
        """Kept reports with a higher number, in order."""
        return [report for report in self._kept if report["n"] > number]

    def acknowledged(self, number: int) -> None:
        """The service has these durably: they need not be kept in memory."""
        self._kept = self.after(number)

    def close(self) -> None:
        """Write what can be written, and close."""
        self._write(durable=True)
        os.close(self._fd)


def _ends_whole(path: Path) -> bool:
    data = path.read_bytes()
    return not data or data.endswith(b"\n")


def read(folder: Path, uid: int | None = None) -> list[dict[str, Any]]:
    """The reports in a folder, oldest first. Torn lines (a full disk, a crash) are left out.

    Args:
        uid: Whose the folder is, where that is somebody else.
    """
    path = folder / FILE
    try:
        lines = (path.read_bytes() if uid is None else read_theirs(path, uid)).splitlines()
    except OSError:
        return []
    reports: dict[int, dict[str, Any]] = {}
    for text in lines:
        with suppress(ValueError, RecursionError):
            if well_formed(report := json.loads(text)):
                reports.setdefault(report["n"], report)
    return [reports[number] for number in sorted(reports)]


def well_formed(report: Any) -> TypeGuard[dict[str, Any]]:
    """Whether this is a report of a supervisor: one that runs as its owner may be made to say anything."""
    return (
        isinstance(report, dict)
        and type(report.get("n")) is int
        and 0 < report["n"] < MOST
        and type(report.get("at_s")) in {int, float}
        and isinstance(report.get("kind"), str)
        and report["kind"] not in AGENTS
        and isinstance(report.get("body"), dict)
    )
