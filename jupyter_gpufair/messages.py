"""What is said to a client in a kernel's place: canned replies while none runs, and truthful errors for cut cells."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from gpufair.client import Workload

PREEMPTED, PARKED, DIED, ENDED = "SessionPreempted", "SessionParked", "KernelDied", "SessionEnded"
CUT, NOT_RUN, UNKNOWN = "CellCut", "NotRun", "OutcomeUnknown"

NOT_RUN_TEXT = "This cell waited for the one before it, which failed or was cut meanwhile, so it was not run."
DEAD_TEXT = "The kernel died before this cell ran, and its variables are gone, so it was not run."
CUT_TEXT = "This cell was cut: its kernel ended while it ran."
UNKNOWN_TEXT = (
    "This cell may have begun before the Jupyter server was restarted, and nothing says whether it did, so it was not "
    "run again. Look at your variables, and run it again if need be."
)

# What one may ask while typing. An empty answer now is better than the right one in an hour.
EMPTY_REPLIES: Mapping[str, Mapping[str, Any]] = {
    "complete_request": {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}},
    "inspect_request": {"status": "ok", "found": False, "data": {}, "metadata": {}},
}


def kernel_info(language: str = "python") -> dict[str, Any]:
    """A ``kernel_info_reply`` for a kernel that is not there yet; for Python as ipykernel would answer.

    Without an answer JupyterLab waits at "Connecting" and sends no cells, and papermill gives up after a minute.
    """
    python = platform.python_version()
    spoken: dict[str, Any] = {"name": language, "version": "", "mimetype": "text/plain", "file_extension": ""}
    if language == "python":
        spoken = {
            "name": "python",
            "version": python,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        }
    return {
        "status": "ok",
        "protocol_version": "5.4",
        "implementation": "ipython",
        "implementation_version": version("ipython"),
        "language_info": spoken,
        "banner": f"{language.capitalize()}: this kernel waits for the scheduler; cells run as soon as it is there",
        "help_links": [],
        # No "debugger" and no "kernel subshells": a client would begin to talk to them.
        "supported_features": [],
    }


def error(ename: str, evalue: str) -> dict[str, Any]:
    """Content of an ``error`` message; with ``output_type`` an output of a notebook."""
    return {"ename": ename, "evalue": evalue, "traceback": [f"\x1b[0;31m{ename}\x1b[0m: {evalue}"]}


def clock(at_s: float) -> str:
    """A time of day as the user's clock shows it."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def cut_text(workload: Workload, at_s: float, before: str | None) -> tuple[str, str]:
    """(ename, evalue) for a cell that ran when its kernel went away.

    Args:
        workload: The session after it lost its kernel.
        at_s: When it was cut.
        before: The session's newest checkpoint when it was last running; None if there was none. By its id, not by its
            time: a checkpoint that was made just before is none of this time, and clocks of machines differ.
    """
    if workload.kernel_died and workload.state == "running":
        why = f" It was {workload.remark.rstrip('.')}." if workload.remark else ""
        return DIED, f"The kernel died while this cell ran.{why} Its variables are gone." + _offer(workload)
    if workload.state == "ended":
        return ENDED, f"The session was ended while this cell ran. {_sentence(workload.reason)}".strip()
    if workload.state == "running":
        return DIED, "The kernel was restarted while this cell ran."
    parked = workload.state == "parked"
    saved = workload.checkpoint
    if saved is not None and saved.id != before:
        kept = f"Your variables were saved at {clock(saved.at_s)}"
        kept += f", except {_names(saved.lost)}." if saved.lost else "."
    elif saved is not None:
        kept = f"This time they could not be saved: your variables as of {clock(saved.at_s)} will come back."
    else:
        kept = "Your variables could not be saved."
    then = (
        "Run the cell again: the session will be resumed."
        if parked
        else "Run the cell again: it waits until the session is back."
    )
    name = PREEMPTED if workload.preemptions else PARKED
    why = _sentence(workload.reason)
    return name, " ".join(part for part in (f"This cell was cut at {clock(at_s)}.", why, kept, then) if part)


def held_text(workload: Workload | None) -> str:
    """Why waiting cells will never run."""
    reason = workload.reason if workload is not None else ""
    return f"The session is over, so this cell was not run. {_sentence(reason)}".strip()


def _sentence(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _names(lost: tuple[tuple[str, str], ...]) -> str:
    shown = ", ".join(name for name, _ in lost[:5])
    return shown + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")


def _offer(workload: Workload) -> str:
    if workload.checkpoint is None:
        return ""
    return f" Those saved at {clock(workload.checkpoint.at_s)} can be restored (GPU session menu: Restore Last Checkpoint)."
