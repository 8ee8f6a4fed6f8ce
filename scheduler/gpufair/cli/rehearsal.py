"""A run on this machine that is cut short and started again, as the scheduler would do it, and what came of it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from gpufair.cli.exits import CommandError
from gpufair.node.child import NOTICE_FILE
from gpufair.node.processes import TAG, end_all

NOTICE, KILL = "notice", "kill"
_TAIL: Final = 5  # lines
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Cut:
    """One preemption: ``left_s`` is how long it took to leave, of ``grace_s``; None if it had to be killed."""

    how: str
    after_s: float
    grace_s: float
    left_s: float | None


class Take:
    """One run, in as many starts as it takes. Use as a context manager: nothing of it is left running.

    Args:
        argv: What is started each time.
        folder: Where its log and its notices lie.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._argv, self._notice = list(argv), folder / NOTICE_FILE
        self._out, self._log = folder / "out", folder / "err"
        self._tag = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._before = 0  # characters of standard output that earlier starts wrote

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(0.0)

    def start(self) -> None:
        """Start it, or start it again.

        Raises:
            CommandError: There is no such program.
        """
        self._notice.unlink(missing_ok=True)
        self._before = len(self._text(self._out))
        env = {**os.environ, TAG: self._tag, "GPUFAIR_NOTICE_FILE": str(self._notice)}
        try:
            with self._out.open("ab") as out, self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._argv, env=env, stdout=out, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
                )
        except OSError as err:
            raise CommandError(f"{self._argv[0]} cannot be started: {err.strerror or err}") from err

    @property
    def ended(self) -> int | None:
        """The exit status of this start; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def wait(self, limit_s: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Until it has ended or something else holds; False if neither came in time."""
        end = time.monotonic() + limit_s
        while self.ended is None and not until():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def cut(self, how: str, after_s: float, grace_s: float) -> Cut:
        """Preempt it, as an agent does: the notice, SIGTERM, and SIGKILL when the grace is over; or SIGKILL at once."""
        begun = time.monotonic()
        if how == KILL:
            self._end(0.0)
            return Cut(how, after_s, 0.0, None)
        notice = {"deadline_s": time.time() + grace_s, "text": "This is a drill: it is started again."}
        self._notice.write_text(json.dumps(notice), encoding="utf-8")
        self._end(grace_s)
        taken_s = time.monotonic() - begun
        return Cut(how, after_s, grace_s, taken_s if taken_s < grace_s else None)

    def _end(self, patience_s: float) -> None:
        if self._process is not None:
            end_all(self._process.pid, self._tag, patience_s=patience_s)
            self._process.wait()

    def said(self) -> str:
        """What this start wrote to standard output."""
        return self._text(self._out)[self._before :]

    def last_line(self) -> str:
        """The last line that any start wrote to standard output."""
        return next((text for text in reversed(self._text(self._out).splitlines()) if text.strip()), "")

    def tail(self) -> str:
        """Its last lines, for an error: of standard error, where there are any."""
        text = self._text(self._log).strip() or self._text(self._out).strip()
        return "\n".join(text.splitlines()[-_TAIL:])

    @staticmethod
    def _text(path: Path) -> str:
        return path.read_text(errors="replace") if path.exists() else ""


def runner(folder: Path) -> list[str]:
    """What runs the notebook of a prepared job."""
    return [sys.executable, "-m", "jupyter_gpufair.batch", str(folder)]


def outputs(notebook: Path) -> list[list[object]]:
    """What each cell shows, without what may differ between two equal runs: counters, and how a text was cut up."""
    return [[*_shown(cell.get("outputs") or [])] for cell in read(notebook)["cells"]]


def read(notebook: Path) -> dict[str, Any]:
    """A notebook that our runner wrote. Raises: CommandError: It is not there."""
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(notebook.read_bytes())
        return found
    raise CommandError(f"the run left no output in {notebook.name}")


def _shown(found: Sequence[Mapping[str, Any]]) -> list[object]:
    shown: list[object] = []
    for one in found:
        if one["output_type"] == "stream":
            text = _joined(one["text"])
            before = shown[-1] if shown else None
            if isinstance(before, tuple) and before[0] == one["name"]:
                shown[-1] = (one["name"], before[1] + text)
            else:
                shown.append((one["name"], text))
        elif one["output_type"] == "error":
            shown.append([one["ename"], one["evalue"]])
        else:
            shown.append({kind: _joined(value) for kind, value in one["data"].items()})
    return shown


def _joined(value: object) -> object:
    return "".join(map(str, value)) if isinstance(value, list) else value
