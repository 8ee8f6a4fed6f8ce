"""Many at once before one service: agents that report, servers that listen, researchers who submit.

``python -m tests.bench.service_crowd URL FOLDER PID SECONDS PER_S`` plays them in one process and prints what they saw. It
speaks HTTP/1.1 over kept connections by itself, so that little of the machine goes to those who only ask.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from prometheus_client.parser import text_string_to_metric_families

from gpufair.service.identity.secrets import Secrets
from gpufair.wire import API_VERSION, HEARTBEAT_S, AgentHello, NodeInventory, to_json

NODES, GPUS, QUEUED, STREAMS, SUBMITTERS = 1_000, 8, 5_000, 200, 24
COMMAND = {"type": "command", "argv": ["true"], "cwd": "/"}
LIMIT_S = 600.0
DECIDED_S = 0.25


class Line:
    """One kept connection."""

    def __init__(self, url: str, token: str) -> None:
        self._where, self._token = urlsplit(url), token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON; an error for any status but 2xx."""
        reader = await self.send(method, path, body)
        status, length = await self.head(reader)
        data = await reader.readexactly(length)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data) if data else None

    async def send(self, method: str, path: str, body: object = None) -> asyncio.StreamReader:
        """Send a request."""
        if self._streams is None:
            assert self._where.hostname is not None
            self._streams = await asyncio.open_connection(self._where.hostname, self._where.port, limit=1 << 22)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: {self._where.netloc}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data)
        await writer.drain()
        return reader

    @staticmethod
    async def head(reader: asyncio.StreamReader) -> tuple[int, int]:
        """Status and length of what follows."""
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
        return int(lines[0].split(" ")[1]), length


@dataclass
class Crowd:
    """Everybody."""

    url: str
    secrets: Secrets
    late_s: list[float] = field(default_factory=list)  # of submissions, from the moment at which each was due
    heard: int = 0  # bytes on event streams
    failed: list[str] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have somebody work on until the end; what goes wrong is told at the end."""

        async def guarded() -> None:
            try:
                await work
            except (OSError, EOFError, RuntimeError, ValueError) as err:
                self.failed.append(f"{type(err).__name__}: {err}")

        self.tasks.append(asyncio.create_task(guarded()))

    def line(self, user: str = "") -> Line:
        """A connection of a user, or of the operator."""
        return Line(self.url, self.secrets.user_token(user) if user else self.secrets.operator_token())

    async def agent(self, number: int, there: asyncio.Event) -> None:
        """Says hello, starts what it is told to, reports that, and is heard of every few seconds."""
        name = f"n{number:04}"
        token = self.secrets.agent_token(name)
        polling, reporting = Line(self.url, token), Line(self.url, token)
        inventory = NodeInventory(name, tuple(f"{name}-{at}" for at in range(GPUS)), "H100", cpus=64, memory_bytes=1 << 40)
        hello = to_json(AgentHello(API_VERSION, "boot", inventory))
        seq, after = 0, int((await polling.ask("POST", f"/agents/{name}/hello", hello))["after"])
        there.set()
        news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def report() -> None:
            await asyncio.sleep(HEARTBEAT_S * number / NODES)
            while True:
                batch = []
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        batch.append(await news.get())
                except TimeoutError:
                    pass
                while not news.empty():
                    batch.append(news.get_nowait())
                await reporting.ask("POST", f"/agents/{name}/reports", {"boot": "boot", "reports": batch})

        self.spawn(report())
        while True:
            found = await polling.ask("GET", f"/agents/{name}/commands?after={after}&boot=boot&wait_s=20")
            for command in found["commands"]:
                after = max(after, command["seq"])
                kind = {"start": "serving", "stop": "released", "preempt": "released"}.get(command["kind"])
                if kind is None:
                    continue
                seq += 1
                body = {"serving": {"generation": 1, "connection": {}, "devices": [], "lost": []}}.get(kind, {"busy": True})
                about = {"workload": command["workload"], "incarnation": command["incarnation"]}
                news.put_nowait({"seq": seq, "at_s": time.time(), "kind": kind, "body": body, **about})

    async def listener(self, user: str) -> None:
        """A Jupyter server's event stream."""
        line = self.line(user)
        reader = await line.send("GET", f"/events?user={user}")
        status, _ = await line.head(reader)
        if status != 200:
            raise RuntimeError(f"the event stream answered {status}")
        while data := await reader.read(1 << 18):
            self.heard += len(data)

    async def submit(self, line: Line, name: str, gpus: int, user: str) -> None:
        """One batch workload."""
        body = {"id": name, "kind": "batch", "gpus": gpus, "min_runtime_s": 3600, "allocation": team(user), "launch": COMMAND}
        await line.ask("POST", "/workloads", body)

    async def many(self, names: list[str], gpus: int) -> None:
        """Submit all of these as fast as it goes."""
        waiting = list(enumerate(names))

        async def some() -> None:
            lines: dict[str, Line] = {}
            while waiting:
                number, name = waiting.pop()
                user = f"u{number % STREAMS}"
                await self.submit(lines.setdefault(user, self.line(user)), name, gpus, user)

        await asyncio.gather(*(some() for _ in range(SUBMITTERS)))

    async def sustained(self, seconds: float, per_s: float) -> float:
        """Submit at this rate; what was reached, per second. Each is late from the moment at which it was due."""
        count = int(seconds * per_s)
        begun, number = time.perf_counter() + 0.1, 0

        async def some(worker: int) -> None:
            nonlocal number
            user = f"u{worker}"
            line = self.line(user)
            while number < count:
                mine, number = number, number + 1
                due = begun + mine / per_s
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                await self.submit(line, f"s{mine}", 1, user)
                self.late_s.append(time.perf_counter() - due)

        await asyncio.gather(*(some(worker) for worker in range(SUBMITTERS)))
        return count / (time.perf_counter() - begun)


def team(user: str) -> str:
    """The allocation of a user."""
    return f"t{int(user[1:]) % 20}"


async def play(url: str, folder: Path, service: psutil.Process, seconds: float, per_s: float) -> dict[str, Any]:
    """All of it."""
    crowd = Crowd(url, Secrets.load(folder))
    there = [asyncio.Event() for _ in range(NODES)]
    for number, event in enumerate(there):
        crowd.spawn(crowd.agent(number, event))
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(event.wait() for event in there))
        begun = time.perf_counter()
        await crowd.many([f"r{at}" for at in range(NODES)], GPUS)
        await crowd.many([f"q{at}" for at in range(QUEUED)], GPUS)
        filled_per_s = (NODES + QUEUED) / (time.perf_counter() - begun)
    for user in range(STREAMS):
        crowd.spawn(crowd.listener(f"u{user}"))
    await asyncio.sleep(5)
    before, resting_s = crowd.heard, used_s(service)
    await asyncio.sleep(5)
    resting_s = (used_s(service) - resting_s) / 5
    busy_s = used_s(service)
    decisions, too_late = await asyncio.to_thread(decided, crowd)
    begun = time.perf_counter()
    reached = await crowd.sustained(seconds, per_s)
    busy_s = used_s(service) - busy_s
    took_s = time.perf_counter() - begun
    late = sorted(crowd.late_s)
    counted = await asyncio.to_thread(decided, crowd)
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    return {
        "per_s": reached,
        # Of the service: of each submission with all that is told and decided meanwhile, and of a second without any.
        "cpu_ms_per_submit": busy_s / len(late) * 1000,
        "cpu_ms_per_s_resting": resting_s * 1000,
        "service_busy": busy_s / took_s,
        "filled_per_s": filled_per_s,
        "p50_ms": statistics.median(late) * 1000,
        "p99_ms": late[int(len(late) * 0.99)] * 1000,
        "max_ms": late[-1] * 1000,
        "decisions": counted[0] - decisions,
        "late": counted[1] - too_late,
        "streamed_mb": (crowd.heard - before) / 1e6,
        "failed": crowd.failed[:5],
    }


def decided(crowd: Crowd) -> tuple[float, float]:
    """How many decisions there were so far, and how many of them came later than they may."""
    headers = {"Authorization": f"Bearer {crowd.secrets.operator_token()}"}
    with urllib.request.urlopen(urllib.request.Request(f"{crowd.url}/metrics", headers=headers), timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    delays = next(family for family in families if family.name == "gpufair_decision_delay_seconds")
    buckets = {sample.labels["le"]: sample.value for sample in delays.samples if sample.name.endswith("_bucket")}
    return buckets["+Inf"], buckets["+Inf"] - buckets[str(DECIDED_S)]


def used_s(process: psutil.Process) -> float:
    """CPU seconds that it has used until now, in all its threads."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    _, url, folder, pid, seconds, per_s = sys.argv
    print(json.dumps(asyncio.run(play(url, Path(folder), psutil.Process(int(pid)), float(seconds), float(per_s)))))
