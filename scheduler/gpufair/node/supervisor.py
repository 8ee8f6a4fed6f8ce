"""One small process beside each workload: starts it, watches it, preempts it, and outlives the agent.

Started by the agent as ``supervise(FOLDER, LOCK_FD, LISTENER_FD)`` in a session of its own. The workload's process is
started before anything that takes time to import. SIGTERM means the same as a preemption: eviction of a pod,
``kubectl drain`` and a plain ``kill`` all checkpoint first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufair.node.child import Child
    from gpufair.node.reports import ReportLog

START_FILE, STATUS_FILE, LOCK_FILE = "start.json", "status.json", "supervisor.lock"
GRACE_S = {"kernel": 120.0, "command": 20.0}  # of the policy, for a notice that comes as a bare signal
ALONE_CHECK_S = 1.0


def main() -> None:
    """Entry point; arguments are folder, descriptor of the lock (held for life) and of the listening socket."""
    notices: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: notices.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    folder = Path(sys.argv[1])
    start: dict[str, Any] = json.loads((folder / START_FILE).read_bytes())

    from gpufair.node import child as children  # noqa: PLC0415

    first: Child | None = None
    problem = ""
    try:
        if start["args"]["launch"]["type"] == "kernel":
            first = children.start_kernel(start, folder, 1)
        else:
            first = children.start_command(start, folder)
    except (OSError, ValueError) as err:
        problem = str(err)

    # The workload boots meanwhile.
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    asyncio.run(_supervise(folder, int(sys.argv[3]), start, first, problem, notices))


async def _supervise(
    folder: Path, listener_fd: int, start: dict[str, Any], first: Child | None, problem: str, notices: list[int]
) -> None:
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415
    import socket  # noqa: PLC0415
    import time  # noqa: PLC0415

    from gpufair.node.files import write_json  # noqa: PLC0415
    from gpufair.node.link import Link  # noqa: PLC0415
    from gpufair.node.reports import ReportLog  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    reports = ReportLog(folder)
    waiting: list[tuple[str, dict[str, Any]]] = []  # commands that came before the workload could take them
    run: Any = None

    def take(kind: str, args: dict[str, Any]) -> None:
        if run is None:
            waiting.append((kind, args))
        else:
            run.command(kind, args)

    link = Link(start["token"], reports, take)
    known: dict[str, Any] = {"pid": os.getpid(), "port": start["port"], "token": start["token"]}

    def status(facts: dict[str, Any]) -> None:
        known.update(facts)
        try:
            write_json(folder / STATUS_FILE, known, durable=False)
        except OSError as err:
            # Never print(): its log is on the same full disk, and that error would end whoever changes the status.
            logging.getLogger(__name__).warning("the status cannot be written now: %s", err)

    status({"phase": "starting", "child": None if first is None else [first.identity.pid, first.identity.started]})
    await link.open(socket.socket(fileno=listener_fd))
    if first is None:
        status({"phase": "start_failed"})
        reports.add("start_failed", {"reason": problem})
        await link.close()
        reports.close()
        return

    run = _workload(folder, start, reports, first, status)
    for kind, args in waiting:
        run.command(kind, args)

    def notice(text: str) -> None:
        run.command("preempt", {"deadline_s": time.time() + GRACE_S[start["args"]["launch"]["type"]], "text": text})

    def on_signal() -> None:
        notice("This node asked the workload to stop.")

    loop.add_signal_handler(signal.SIGTERM, on_signal)
    if notices:
        on_signal()

    async def watch_alone() -> None:
        limit = start["orphan_timeout_s"]
        while limit is not None:
            await asyncio.sleep(min(ALONE_CHECK_S, limit))
            if link.alone_since is not None and time.monotonic() - link.alone_since > limit:
                notice("No agent has been there for too long.")
                return

    alone = asyncio.create_task(watch_alone())
    await run.run()
    alone.cancel()
    await link.close()
    reports.close()


def _workload(folder: Path, start: dict[str, Any], reports: ReportLog, first: Child, status: Any) -> Any:
    if start["args"]["launch"]["type"] == "kernel":
        from gpufair.node.session import Session  # noqa: PLC0415

        return Session(start, folder, reports, first, status)
    from gpufair.node.command_run import CommandRun  # noqa: PLC0415

    return CommandRun(start, folder, reports, first, status)
