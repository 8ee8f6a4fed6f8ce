"""What a supervisor has to tell: kept in its folder, and streamed to whoever listens."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "reports.jsonl"
DURABLE = frozenset({"checkpointed", "released", "exited", "start_failed"})
TERMINAL = frozenset({"released", "exited", "start_failed"})
_log = logging.getLogger(__name__)


class ReportLog:
    """Appends reports, numbered from 1. A full disk loses none: they stay in memory and are written later."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        existing = read(folder)
        self._kept: list[dict[str, Any]] = []  # not yet acknowledged by the service, oldest first
        # A writer killed in the middle of a line must not spoil ours too.
        self._unwritten: list[bytes] = [] if _ends_whole(folder / FILE) else [b"\n"]
        self._last = existing[-1]["n"] if existing else 0
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


def read(folder: Path) -> list[dict[str, Any]]:
    """The reports in a folder, oldest first. Torn lines (a full disk, a crash) are left out."""
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except OSError:
        return []
    reports: dict[int, dict[str, Any]] = {}
    for text in lines:
        try:
            report = json.loads(text)
            reports.setdefault(int(report["n"]), report)
        except (ValueError, TypeError, KeyError):
            continue
    return [reports[number] for number in sorted(reports)]
