"""Finding and ending every process of a workload, and no other process.

A workload's first process leads a session of its own, and its environment carries a random tag that its descendants
inherit. A descendant that leaves the session keeps the tag; one that clears its environment mostly stays in the
session. Each process is known by id *and* start time, so an id that the system gave to somebody else is never hit.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TAG = "GPUFAIR_TAG"  # environment variable: random per start of a workload
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PROC = Path("/proc")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h


class Proc(NamedTuple):
    """A process: ``started`` (clock ticks since boot) tells apart two holders of one id."""

    pid: int
    started: int


class _Stat(NamedTuple):
    state: str
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may itself hold blanks and parentheses.
    fields = text[text.rfind(")") + 2 :].split()
    return _Stat(fields[0], int(fields[3]), int(fields[19]))


def identify(pid: int) -> Proc | None:
    """The process that has this id now, or None (a zombie counts as gone)."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else Proc(pid, stat.started)


def alive(process: Proc) -> bool:
    """Whether this very process still runs."""
    return identify(process.pid) == process


def belongs_to(pid: int, uid: int) -> bool:
    """Whether a process was started by this account, whatever it runs as."""
    try:
        text = (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return False
    real = next((line.split()[1] for line in text.splitlines() if line.startswith("Uid:")), "")
    return real == str(uid)


def find(session: int | None, tag: str, uid: int | None = None) -> set[Proc]:
    """All living processes of the session, and all whose environment carries ``tag``. Needs /proc (Linux).

    Args:
        uid: Only those of this account: what is known of them comes from it, and may be made up.
    """
    wanted = f"{TAG}={tag}".encode()
    own = os.getpid()
    found: set[Proc] = set()
    if not _PROC.is_dir():
        return found
    for entry in os.listdir(_PROC):  # noqa: PTH208  # Path objects for each process cost more than the reading
        if not entry.isdigit() or int(entry) == own:
            continue
        stat = _stat(int(entry))
        if stat is None or stat.state in "ZX":
            continue
        if (session is not None and stat.session == session) or (tag and wanted in _environment(entry)):
            if uid is not None and not belongs_to(int(entry), uid):
                continue
            found.add(Proc(int(entry), stat.started))
    return found


def by_tag(tags: Iterable[str]) -> dict[str, list[int]]:
    """The living processes of each of these workloads, as far as they may be looked at. One look at all there are."""
    wanted = {f"{TAG}={tag}".encode(): tag for tag in tags}
    found: dict[str, list[int]] = {tag: [] for tag in wanted.values()}
    for entry in os.listdir(_PROC) if wanted and _PROC.is_dir() else ():  # noqa: PTH208  # as above
        if entry.isdigit() and (mine := wanted.keys() & set(_environment(entry))):
            found[wanted[min(mine)]].append(int(entry))
    return found


def open_files(pid: int) -> list[str]:
    """Paths of what a process holds open; none where it may not be asked."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            with suppress(OSError):  # closed meanwhile
                found.append(os.readlink(entry.path))  # noqa: PTH115  # as above
    return found


def sees_all() -> bool:
    """Whether we are in the first pid namespace: in a container, drivers do not name the processes that we know."""
    try:
        return (_PROC / "self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _environment(pid: str) -> list[bytes]:
    try:
        return (_PROC / pid / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return []


def send(process: Proc, number: int, uid: int | None = None) -> None:
    """Signal this very process, if it still runs (and is ``uid``'s)."""
    try:
        fd = os.pidfd_open(process.pid)
    except (OSError, AttributeError):  # gone, or no Linux
        return
    try:
        # Compared after opening: from here on the descriptor names one process for ever.
        if identify(process.pid) == process and (uid is None or belongs_to(process.pid, uid)):
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def end_all(
    session: int | None, tag: str, *, patience_s: float = 1.0, limit_s: float = 15.0, uid: int | None = None
) -> set[Proc]:
    """Terminate, then kill, all processes of a workload, those included that it starts meanwhile. Blocks.

    Args:
        session: Session id of its first process (its pid), None if unknown.
        tag: Value of ``TAG`` in its environment.
        patience_s: Time between SIGTERM and SIGKILL; 0 kills at once.
        limit_s: This long after the first SIGKILL it gives up (a process in uninterruptible I/O cannot be killed).
        uid: See ``find``.

    Returns: All processes that were signalled. Those that are still ``alive`` could not be killed.
    """
    seen: set[Proc] = set()
    begun = time.monotonic()
    pause = 0.005
    while now_there := find(session, tag, uid):
        elapsed = time.monotonic() - begun
        if elapsed > patience_s + limit_s:
            break
        if elapsed >= patience_s:
            targets, number = now_there, signal.SIGKILL
        else:
            targets, number = now_there - seen, signal.SIGTERM
        for process in targets:
            send(process, number, uid)
        seen |= now_there
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return seen


def no_new_privileges() -> Callable[[], None]:
    """What a child calls before exec so that no program that it runs, sudo for one, gets it more rights (Linux)."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return lambda: None

    def before_exec() -> None:
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    return before_exec


def death_signal() -> Callable[[], None]:
    """What a child calls before exec so that it dies with its parent, kill -9 of the parent included (Linux).

    The kernel sends it when the *thread* that started the child ends, so children are started from the main thread.
    """
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # no Linux: the agent's cleaning up remains
        return lambda: None

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return before_exec
