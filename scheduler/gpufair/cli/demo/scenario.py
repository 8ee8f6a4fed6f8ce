"""The main job from end to end: Ria trains, Ben has waited longer, Ria's session moves and loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from gpufair.cli.demo.history import History
from gpufair.cli.demo.jupyter import DemoFailed, JupyterServer, Notebook
from gpufair.cli.demo.lab import GUEST, OWNER, Lab, document
from gpufair.client import AsyncClient, Workload
from gpufair.client.endpoint import is_alive

STEP_S = 45.0  # the longest step is a cold start of a kernel on a slow disk
SWEEP_S = 30.0  # Ria's batch job keeps the second node until Ben has the first
Found = TypeVar("Found")
RESULT = re.compile(r"RESULT (\S+) (\S+) (\d+) (\S+)")


@dataclass(slots=True)
class Report:
    """What the demo found. ``checks`` are facts that must all be true."""

    checks: dict[str, bool] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    teams: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Everything held."""
        return bool(self.checks) and all(self.checks.values())

    def as_json(self) -> dict[str, Any]:
        """The machine-readable result."""
        return {"ok": self.ok, "checks": self.checks, "same_kernel_id": self.checks.get("same_kernel_id", False),
                "other_node": self.checks.get("other_node", False), **self.figures}  # fmt: skip


class Scenario:
    """One run. ``say`` gets a line for people at each step."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab, self._say = lab, say
        self.report = Report()

    async def run(self) -> Report:
        """Play it, check it, and leave nothing running."""
        began = time.monotonic()
        self._lab.write()
        servers: list[JupyterServer] = []
        try:
            ria_server = await JupyterServer.start(
                self._lab.folder / "ria", self._lab.notebooks, self._lab.environment()
            )
            servers.append(ria_server)
            await self._until("the embedded service", self._service_up)
            ben_server = await JupyterServer.start(self._lab.folder / "ben", self._lab.notebooks, self._guest())
            servers.append(ben_server)
            async with AsyncClient(state_dir=self._lab.state) as client:
                try:
                    await self._play(client, ria_server, ben_server)
                finally:
                    await self._end_all(client)
        finally:
            await asyncio.gather(*(server.stop() for server in servers))
            await self._stop_service()
        self.report.figures["wall_s"] = round(time.monotonic() - began, 2)
        return self.report

    async def _play(self, client: AsyncClient, ria_server: JupyterServer, ben_server: JupyterServer) -> None:
        checks, figures = self.report.checks, self.report.figures
        self._say(f"two nodes with one GPU each; {OWNER} opens digits.ipynb and trains")
        ria = await Notebook.open(ria_server, document("digits.ipynb"), "digits.ipynb", "gpufair-digits")
        self._name(ria.kernel_id, "Ria's notebook", "language")
        kernel_id = ria.kernel_id
        first_node = (await self._state(client, kernel_id, "running")).leases[0].node
        sweep = await client.submit(self._sweep(), kind="batch", allocation="language/digits", user=OWNER, gpus=1,
                                    min_runtime_s=SWEEP_S * 2, name="sweep", resumable=False)  # fmt: skip
        self._name(sweep.id, "Ria's sweep", "language")
        for index in (0, 1):
            run = await ria.run(index).finished(STEP_S)
            if run.status != "ok":
                raise DemoFailed(f"Ria's cell failed: {run.error}")
            self._say(f"  {run.text.strip()}")
        granted = (await client.workload(kernel_id)).protected_until_s
        assert granted is not None
        protected_until = granted

        self._say(f"{GUEST} opens baseline.ipynb; every GPU is taken")
        ben = await Notebook.open(ben_server, document("baseline.ipynb"), "baseline.ipynb", "gpufair-baseline")
        self._name(ben.kernel_id, "Ben's notebook", "vision")
        waiting = await self._state(client, ben.kernel_id, "queued")
        ben_cell = ben.run(0)  # he does not wait: his cell does
        why = await client.why(ben.kernel_id)
        self._say(f"  why he waits: {why.sentence}")
        estimate = why.start.at_s if why.start else None
        if why.start and estimate is not None:
            self._say(f"  {why.start.kind.replace('_', ' ')}: in {estimate - time.time():.0f} s ({why.start.because})")
        # A start-by or estimate is right if Ben may start when Ria's protection ends, give or take the grace.
        checks["explained_with_a_start_time"] = estimate is not None and abs(estimate - protected_until) <= 20.0
        checks["explanation_names_the_holder"] = kernel_id in {holder.workload for holder in why.holders}
        checks["waited_while_ria_was_protected"] = waiting.state == "queued"

        parked = await self._state(client, kernel_id, "parked")
        checks["parked_with_a_checkpoint"] = parked.checkpoint is not None
        checks["nothing_lost_in_the_checkpoint"] = parked.checkpoint is not None and not parked.checkpoint.lost
        if parked.checkpoint is not None:
            figures["checkpoint_s"] = parked.checkpoint.duration_s
            figures["checkpoint_bytes"] = parked.checkpoint.size_bytes
            self._say(
                f"Ria's session is saved ({parked.checkpoint.size_bytes:,} bytes) and parked; she runs a cell anyway"
            )
        held = ria.run(2)
        shown = await self._until("the held cell", lambda: self._held(ria))
        checks["cell_held_while_parked"] = shown["held_cells"] == 1 and not held.done.is_set()

        running = await self._state(client, ben.kernel_id, "running")
        checks["ben_runs_on_the_freed_gpu"] = running.leases[0].node == first_node
        answer = await ben_cell.finished(STEP_S)
        checks["bens_waiting_cell_ran"] = answer.status == "ok" and first_node in answer.text
        self._say(f"Ben runs: {answer.text.strip()}")

        back = await self._state(client, kernel_id, "running")
        run = await held.finished(STEP_S)
        found = RESULT.search(run.text)
        if run.status != "ok" or found is None:
            raise DemoFailed(f"the held cell did not finish as it should: {run.error or run.text!r}")
        figures["accuracy_before"], figures["accuracy_after"] = float(found[1]), float(found[2])
        self._say(
            f"Ria is back on {found[4]}; her held cell went on training: {float(found[1]):.4f} -> {float(found[2]):.4f}"
        )
        checks["same_kernel_id"] = await ria.kernel_ids() == [kernel_id] and back.id == kernel_id
        checks["websocket_stayed_open"] = not ria.websocket_closed
        checks["other_node"] = back.leases[0].node != first_node and found[4] == back.leases[0].node
        checks["nothing_lost_in_the_restore"] = not back.lost
        checks["model_came_back"] = int(found[3]) == 24 and figures["accuracy_before"] > 0.5
        checks["training_went_on"] = figures["accuracy_after"] >= figures["accuracy_before"]
        await asyncio.gather(ria.shut_down(), ben.shut_down())
        await self._until("the end of all workloads", lambda: self._idle(client))
        await asyncio.gather(ria.close(), ben.close())
        await self._check_books(client, kernel_id, ben.kernel_id, protected_until)

    async def _check_books(self, client: AsyncClient, ria: str, ben: str, protected_until_s: float) -> None:
        checks, figures = self.report.checks, self.report.figures
        self.report.records = await client.timeline()
        history = History.read(self.report.records)
        stays = history.of(ria)
        notice = stays[0].preempted_ms
        checks["preempted_exactly_when_the_protection_ended"] = notice == round(protected_until_s * 1000)
        checks["preempted_for_ben"] = any(
            r["kind"] == "BeginCheckpoint" and r["workload"] == ria and r["beneficiary"] == ben
            for r in self.report.records
        )
        restored = stays[-1]
        if restored.started_ms is not None:
            figures["restore_s"] = round((restored.started_ms - restored.granted_ms) / 1000, 3)
        figures["protected_preemptions"] = history.protected_preemptions()
        checks["no_protected_preemption"] = figures["protected_preemptions"] == 0
        books = await client.conservation()
        ended = {w.id: w for w in await client.workloads("ended")}
        charged = {w: round(ended[w].charged_gpu_s * 1000) for w in self.report.names}
        apart = sum(abs(charged[w] - history.held_gpu_ms(w, round(time.time() * 1000))) for w in charged)
        figures["ledger_error_gpu_ms"] = apart + abs(int(books["error_gpu_ms"]))
        checks["ledger_adds_up"] = figures["ledger_error_gpu_ms"] == 0

    def _name(self, workload: str, name: str, team: str) -> None:
        self.report.names[workload], self.report.teams[workload] = name, team

    def _sweep(self) -> dict[str, Any]:
        script = resources.files("gpufair.cli.demo") / "sweep.py"
        return {
            "type": "command",
            "argv": ["python", str(script), str(SWEEP_S)],
            "cwd": str(self._lab.folder),
            "env": {},
        }

    def _guest(self) -> dict[str, str]:
        """Ben's Jupyter server uses the same service, by its URL and his own token."""
        service = json.loads((self._lab.state / "service.json").read_text())
        token = (self._lab.state / "tokens" / f"{GUEST}.token").read_text().strip()
        return {"GPUFAIR_URL": service["url"], "GPUFAIR_TOKEN": token}

    async def _service_up(self) -> bool:
        return (self._lab.state / "service.json").exists()

    async def _held(self, notebook: Notebook) -> dict[str, Any] | None:
        shown = await notebook.session()
        return shown if shown["held_cells"] else None

    async def _idle(self, client: AsyncClient) -> bool:
        return not [w for w in await client.workloads() if w.live]

    async def _state(self, client: AsyncClient, workload: str, state: str) -> Workload:
        async def there() -> Workload | None:
            seen = await client.workload(workload)
            if seen.state == "ended" and state != "ended":
                raise DemoFailed(f"{self.report.names.get(workload, workload)} ended early: {seen.reason}")
            return seen if seen.state == state and (state != "running" or seen.serving) else None

        return await self._until(f"{self.report.names.get(workload, workload)} to be {state}", there)

    async def _until(self, what: str, probe: Callable[[], Awaitable[Found | None]]) -> Found:
        deadline = time.monotonic() + STEP_S
        while time.monotonic() < deadline:
            if found := await probe():
                return found
            await asyncio.sleep(0.05)
        raise DemoFailed(f"waited {STEP_S:g} s in vain for {what}")

    async def _end_all(self, client: AsyncClient) -> None:
        for workload in await client.workloads():
            if workload.live:
                await client.stop(workload.id)
        await self._until("all workloads to end", lambda: self._idle(client))

    async def _stop_service(self) -> None:
        """End the embedded service and its agents, as `gpufair serve` does at Ctrl-C."""
        file: Path = self._lab.state / "service.json"
        if not file.exists():
            return
        pid = int(json.loads(file.read_text())["pid"])
        os.kill(pid, 15)
        await self._until("the service to end", lambda: _gone(pid))


async def _gone(pid: int) -> bool:
    return not is_alive(pid)
