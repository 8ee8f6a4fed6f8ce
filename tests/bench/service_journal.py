"""How soon a service is back with 100,000 entries in its journal."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from gpufair.core import events as ev
from gpufair.core.actions import Start
from gpufair.core.model import Allocation, Kind, Node, Outcome, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, WorkloadId
from gpufair.service.runtime import attic
from gpufair.service.runtime.recovery import take_snapshot
from gpufair.service.storage import codec
from gpufair.service.storage.ended import Ended
from gpufair.service.storage.store import NewEntry, Store, sqlite_url
from gpufair.service.workloads.details import Detail
from tests.bench.result import CALIBRATED_S, Result, calibration

ENTRIES = 100_000
SNAPSHOT_EVERY = 1000
LIMIT_S = 3.0
CAUSE = CauseId("bench")
CONFIG = """\
budgets = "budgets.toml"
[[node]]
name = "n1"
gpus = 8
"""
LAUNCH = {"type": "command", "argv": ["true"], "cwd": "/"}


@contextmanager
def service(folder: Path) -> Iterator[tuple[httpx.URL, str]]:
    """A running service: its address and the operator's token. It is killed in the end, as in an accident."""
    (folder / "budgets.toml").write_text('[[allocation]]\npath = "a"\n')
    (folder / "g.toml").write_text(CONFIG)
    state = folder / "state"
    command = [sys.executable, "-m", "gpufair.cli", "serve", "--config", str(folder / "g.toml"), "--state-dir", str(state)]
    (state / "service.json").unlink(missing_ok=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not (state / "service.json").exists():
            assert process.poll() is None, "the service has ended"
            assert time.monotonic() < until
            time.sleep(0.005)
        info = json.loads((state / "service.json").read_text())
        yield httpx.URL(info["url"]), info["token"]
    finally:
        process.kill()
        process.wait(30)
        for one in psutil.process_iter():  # agents outlive their service
            with suppress(psutil.Error):
                if any(str(folder) in word for word in one.cmdline()):
                    one.kill()


def write_journal(folder: Path, entries: int) -> None:
    """The journal of a week of small jobs, as a service that is killed just before its next snapshot leaves it."""
    store = Store(sqlite_url(folder), "bench")
    state = State()
    now = int(time.time() * 1000)
    step = 7 * 24 * 3600 * 1000 // entries
    at = now - step * entries
    batch: list[NewEntry] = []
    written = 0

    def feed(event: ev.Event) -> list[Any]:
        nonlocal written
        actions = state.handle(event)
        policy = codec.policy_digest(state.policy)
        batch.append(NewEntry(event.at, codec.dump_event(event), codec.dump_actions(actions), policy))
        written += 1
        if written % SNAPSHOT_EVERY == 0 or written == entries:
            store.append(batch)
            batch.clear()
        if written % SNAPSHOT_EVERY == 0:
            gone, unit = state.drop(attic.due(state)), state.facts.weights.unit
            store.put_away(written, [Ended(record, unit, Detail().to_dict()) for record in gone])
            if entries - 3 * SNAPSHOT_EVERY < written < entries:  # those that a service would still have
                store.save_snapshot(take_snapshot(state, written))
        return actions

    feed(ev.BudgetsApplied(Instant(at), CAUSE, (Allocation(AllocationPath("a")),)))
    feed(ev.NodeJoined(Instant(at), CAUSE, Node(NodeName("n1"), 8)))
    spec = WorkloadSpec(AllocationPath("a"), "ada", Kind.BATCH, Shape(1), Millis(0), launch=LAUNCH)
    number = 0
    due: list[ev.Event] = []
    while written < entries:
        at += step
        wakeup = state.next_wakeup()
        if wakeup is not None and wakeup <= at:
            feed(ev.TimePassed(wakeup, CAUSE))
        elif due:
            event = due.pop(0)
            feed(type(event)(**{**_fields(event), "at": Instant(max(at, state.now))}))
        else:
            number += 1
            name = WorkloadId(f"{number:08x}-job")
            for action in feed(ev.Submitted(Instant(max(at, state.now)), CAUSE, name, spec)):
                if isinstance(action, Start):
                    about = (action.workload, action.held.incarnation)
                    due += [ev.Started(Instant(0), CAUSE, *about), ev.Exited(Instant(0), CAUSE, *about, Outcome.COMPLETED)]
    store.close()


def _fields(event: ev.Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def restart() -> Result:
    """From starting the process to its first answers, with all that the journal holds."""
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "state").mkdir(mode=0o700)
        write_journal(folder / "state", ENTRIES - 1)  # the longest tail: no snapshot for 999 entries
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            with service(folder) as (url, token):
                answer = httpx.get(f"{url}/api/v1/status", headers={"Authorization": f"Bearer {token}"}, timeout=60)
                times.append(time.perf_counter() - begun)
                assert answer.status_code == 200
                entries = httpx.get(f"{url}/api/v1/queue", headers={"Authorization": f"Bearer {token}"}, timeout=60)
                assert entries.status_code == 200
                pid = json.loads((folder / "state" / "service.json").read_text())["pid"]
                memory_mb = round(psutil.Process(pid).memory_info().rss / 1e6)
        scale = max(1.0, calibration() / CALIBRATED_S)
        notes: dict[str, float | str] = {"slowest_s": round(max(times), 2), "entries": ENTRIES - 1, "scale": round(scale, 2)}
        notes["memory_mb"] = memory_mb
        return Result(sorted(times)[1], "s", LIMIT_S * scale, notes=notes)


CASES = {"service_restart": restart}
