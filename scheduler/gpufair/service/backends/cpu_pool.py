"""The CPU pool that the service keeps: started when somebody first asks, adopted, started again if it dies, told how it is shared.

It is the same process that ``gpufair cpu start`` starts, with a folder of its own and a plan in it. Like agents it is not
ended with the service: a restarted one finds it, and without any service it ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.core.fading import full_span
from gpufair.core.state import State
from gpufair.core.units import SECOND, Millis
from gpufair.cpu import plan, resident
from gpufair.cpu.turns import CHARGED_FILE, Charged
from gpufair.node.files import read_json
from gpufair.paths import SERVICE_LOCK, private_dir
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.cpu_pool_options import CpuPoolOptions

FOLDER = "cpu-pool"  # in the state folder
POLL_S = 1.0
BACKOFF_S = (1.0, 60.0)
JOIN_WAIT_S = 5.0  # that an answer is held back for; then it says "starting", and is asked for again
LEAST_ORPHANED_S = 60.0  # it must outlast a restart of the service on a slow machine
ORPHANED_S = 900.0  # where the service itself has no limit
MAX_PEM_BYTES = 64 << 10
_log = logging.getLogger(__name__)


class CpuPool:
    """Starts, watches and ends the pool.

    Args:
        options: As configured.
        state_dir: The service's.
        runtime: Knows the budget tree.
        linger: For how long the pool goes on without any service; None: ``ORPHANED_S``.
    """

    def __init__(self, options: CpuPoolOptions, state_dir: Path, runtime: Runtime, linger: Millis | None) -> None:
        self.options = options
        self._folder, self._runtime = state_dir / FOLDER, runtime
        self._lock = state_dir / SERVICE_LOCK
        self._linger_s = ORPHANED_S if linger is None else max(linger / SECOND, LEAST_ORPHANED_S)
        self._wanted, self._planned = False, plan.Plan()
        self._changed = asyncio.Event()  # poked, or another state
        self._living: resident.Resident | None = None
        self._reason, self._again_at, self._pause_s = "", 0.0, BACKOFF_S[0]
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Future[tuple[resident.Resident, bool]] | None = None

    @property
    def _kept(self) -> bool:
        """Whether there is a process to keep."""
        return self.options.enabled and not self.options.address

    async def start(self) -> None:
        """Adopt the pool that another service left; start none."""
        living = await asyncio.to_thread(self._found)
        if living is not None and not self._kept:
            _log.info("the CPU pool of an earlier configuration is ended")
            await asyncio.to_thread(resident.stop, self._folder)
        if self._kept:
            self._wanted, self._living = living is not None, living
            if living is not None and self._differs(living):
                _log.warning(
                    "the CPU pool (pid %d) goes on as it was started, with up to %d workers of %d bytes; "
                    "end that process, and the next one is as configured", living.pid, living.workers, living.memory_bytes,
                )  # fmt: skip
            self._task = asyncio.create_task(self._keep(), name="cpu-pool")

    async def leave(self) -> None:
        """Stop watching; the pool goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """End the pool, with all that it runs."""
        await self.leave()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._kept:
            await asyncio.to_thread(resident.stop, self._folder)

    def view(self) -> dict[str, Any]:
        """What everybody may know of it.

        ``state``: ``off``, ``stopped`` (nobody has asked for it), ``starting``, ``running`` or ``failed`` (``reason`` says why).
        """
        view: dict[str, Any] = {"state": "off", "address": "", "reason": self._reason, "tasks_per_user": self.options.tasks_per_user}
        if not self.options.enabled:
            return view
        if self.options.address:
            return view | {"state": "running", "address": self.options.address, "kept": False}
        view |= {"state": "stopped", "kept": True, "log": str(resident.place(self._folder, "log"))}
        if self._wanted:
            view["state"] = "failed" if self._reason else "starting"
        if (living := self._living) is not None and resident.began(living.pid) == living.began:
            view |= {"state": "running"} | {name: getattr(living, name) for name in ("address", "workers", "memory_bytes", "pid", "started_s")}
        return view

    async def join(self) -> dict[str, Any]:
        """``view`` with what opens it, for who may use it; has it started if need be."""
        if self._kept and self.view()["state"] != "running":
            self._wanted = True
            self._changed.set()
            until = time.monotonic() + JOIN_WAIT_S
            while self.view()["state"] == "starting" and time.monotonic() < until:
                await asyncio.sleep(0.05)
        view = self.view()
        if view["state"] != "running":
            return view
        if self.options.address:
            try:
                return view | await asyncio.to_thread(self._files)
            except (OSError, ValueError) as err:
                return view | {"state": "failed", "reason": f"its TLS files cannot be read: {err}"}
        assert self._living is not None
        return view | {"ca": self._living.certificate, "certificate": self._living.certificate, "key": self._living.key}

    async def usage(self) -> dict[str, Any]:
        """What decides whose turn it is: ``window_s``, and of each allocation its ``share`` and the ``worker_s`` that it had in it."""
        if not self._kept:
            return {"window_s": 0.0, "usage": []}
        wanted = await self._plan()

        def add_up() -> Counter[str]:
            had, books = Counter[str](), Charged(max(1, round(wanted.window_s * 1000)))
            with contextlib.suppress(ValueError, TypeError):  # a damaged file is as good as none, to the pool as well
                books.load((read_json(self._folder / CHARGED_FILE) or {}).get("charged", ()))
            for whom, ms in books.totals(time.time_ns() // 1_000_000).items():
                had[whom.leaf] += ms
            return had

        had = await asyncio.to_thread(add_up)
        usage = [
            {"allocation": leaf, "share": above / below, "worker_s": had[leaf] / 1000}
            for leaf, (above, below) in wanted.shares.items()
        ]
        return {"window_s": wanted.window_s, "usage": usage}

    # -- inside ---------------------------------------------------------------------------------------------------

    def _found(self) -> resident.Resident | None:
        try:
            return resident.found(self._folder)
        except GpufairError as err:
            _log.error("the CPU pool that may run cannot be used: %s", err)
            return None

    def _differs(self, living: resident.Resident) -> bool:
        return any(
            wanted is not None and wanted != is_now
            for wanted, is_now in ((self.options.workers, living.workers), (self.options.memory, living.memory_bytes))
        )

    def _files(self) -> dict[str, str]:
        texts = [path.read_bytes()[: MAX_PEM_BYTES].decode() for path in self.options.tls]
        return dict(zip(("ca", "certificate", "key"), texts, strict=False))

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            try:
                if self._wanted:
                    await self._look()
            except (GpufairError, OSError) as err:
                if self._reason != str(err):
                    _log.error("the CPU pool: %s", err)
                self._reason = str(err)
                self._back_off()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        wanted = await self._plan()
        if wanted != self._planned:
            await asyncio.to_thread(self._write, wanted)
            self._planned = wanted
        living = await asyncio.to_thread(resident.found, self._folder)
        if living is None:
            if self._living is not None:
                _log.warning("the CPU pool (pid %d) has died; the next one is started", self._living.pid)
                self._living = None
            if time.monotonic() < self._again_at:
                return
            start = partial(resident.start, self._folder, workers=self.options.workers, memory_bytes=self.options.memory)
            self._starting = asyncio.ensure_future(asyncio.to_thread(start))
            # Shielded: who ends it has to wait until it is there.
            made, _ = await asyncio.shield(self._starting)
            self._living = made
            _log.info("the CPU pool runs at %s with up to %d workers", made.address, made.workers)
            self._back_off()  # it may die of what it is asked to do, time and again
        else:
            self._living = living
            if time.monotonic() > self._again_at + BACKOFF_S[1]:
                self._pause_s = BACKOFF_S[0]
        self._reason = ""

    def _back_off(self) -> None:
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, BACKOFF_S[1])

    def _write(self, wanted: plan.Plan) -> None:
        private_dir(self._folder)
        plan.write(self._folder, wanted)

    async def _plan(self) -> plan.Plan:
        def look(state: State) -> tuple[dict[str, tuple[int, int]], Millis]:
            return {leaf: state.tree.ratio(leaf) for leaf in state.tree.leaves}, full_span(state.policy)

        shares, window = await self._runtime.read(look)
        return plan.Plan(
            dict(shares), (self.options.window or window) / SECOND, self.options.tasks_per_user, str(self._lock), self._linger_s
        )
