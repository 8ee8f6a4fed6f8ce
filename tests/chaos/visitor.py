"""Somebody with a notebook that counts: what was saved comes back, whatever was killed, and there is never a second kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from gpufair.client import Client, ClientError, Workload
from tests.chaos.lab import Lab
from tests.chaos.somebody import Somebody

KERNEL = ["python", "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
CELL_S = 20.0
SAVED_S = 20.0
BACK_S = 60.0  # from a kernel that serves to the variables that it should have
# A kernel holds the lock of its notebook to its death. What locks it is no part of what is saved.
ALONE = """
def _alone(path, tries=100):
    import fcntl, os, time
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(tries):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False
_only_one = _alone({path!r})
del _alone
"""


class Gone(Exception):  # an event, not an error
    """The kernel of before does not answer any more."""


class Visitor(Somebody):
    """Runs cells, saves now and then, and goes back to the notebook after each loss."""

    def __init__(self, lab: Lab, seed: int, number: int) -> None:
        self.id = f"s{number}"
        super().__init__(lab, seed, self.id)
        self._allocation = "ab"[number % 2]
        self._done, self._promised = 0, 0  # cells that were answered; those that a checkpoint is known to hold
        self._locked: tuple[int, int] | None = None  # incarnation and generation of the kernel that has the lock
        self._still_here: Callable[[], object] = lambda: None  # raises Gone where the service knows that it is
        self.acknowledged = False
        self.returns, self.promises, self.cells = 0, 0, 0  # how often variables came back, were saved; cells in all

    def work(self, client: Client) -> None:
        """Until it is over; then one visit more, so that what was promised is seen again, and the notebook is closed."""
        launch = {"type": "kernel", "argv": KERNEL, "cwd": str(self.lab.folder), "env": {}}
        self.submit(client, self.id, launch, kind="session", allocation=self._allocation, gpus=1, min_runtime_s=1.0)
        self.acknowledged = True
        last_s: float | None = None
        while not (self._come_in(client) and self.over.is_set()):
            if self.over.is_set():
                last_s = last_s or time.monotonic()
                if time.monotonic() - last_s > 2 * BACK_S:
                    self.violations.append(f"{self.id} does not come back: {client.workload(self.id)}")
                    break
            time.sleep(0.1)
        client.stop(self.id)

    # ------------------------------------------------------------------ a visit

    def _come_in(self, client: Client) -> bool:
        """Whether all was there that should be."""
        with suppress(ClientError):  # as it is while a service starts; the next try asks again
            workload = client.workload(self.id)
            if not workload.live:
                self.violations.append(f"{self.id} has ended by itself: {workload.outcome}, {workload.reason}")
                self.over.set()
                return True
            if workload.state == "parked":
                client.resume(self.id)
            elif workload.kernel_died:
                client.restart(self.id)
            elif workload.state == "running" and workload.serving:
                return self._visit(client, workload)
        return False

    def _visit(self, client: Client, workload: Workload) -> bool:
        found = client.connection(self.id)
        which = (found.incarnation, found.generation)
        if not found.serving or which[0] != workload.incarnation:
            return False
        kernel = BlockingKernelClient()
        info: Any = {"key": found.key, "transport": "tcp", "signature_scheme": "hmac-sha256"}
        kernel.load_connection_info(info | {k: v for k, v in found.connection.items() if k != "via"})
        kernel.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
        try:
            self._still_here = lambda: self._still(client, which)
            if self._locked != which:
                self._back(client, kernel, which)
                self._locked = which
            else:
                self._same(kernel, which)
            for _ in range(1 if self.over.is_set() else self.draw.randrange(3, 20)):
                self._count(kernel)
                if self.over.is_set():
                    return True
                time.sleep(self.draw.uniform(0.0, 0.2))
            self._save(client, kernel)
        except Gone:
            pass
        finally:
            kernel.stop_channels()
        return False

    def _back(self, client: Client, kernel: BlockingKernelClient, which: tuple[int, int]) -> None:
        """In a kernel that is new to us: is it alone, and has it what was saved?"""
        end = time.monotonic() + BACK_S
        while self._promised and self._still(client, which).restore_offered and time.monotonic() < end:
            # It came in place of one that died: its owner asks for what was saved, before anything is run in it.
            with suppress(ClientError):
                client.restore(self.id)
            self._await_restored(client, which)
        count = int(self._value(kernel, "globals().get('n', -1)"))
        path = self.lab.proof / f"{self.id}.kernel.lock"
        self._run(kernel, ALONE.format(path=str(path)))
        if self._value(kernel, "_only_one") != "True":
            self.violations.append(f"{self.id}: a second kernel runs, beside incarnation and generation {which}")
        if self._promised and count < self._promised:
            known = client.workload(self.id)
            self.violations.append(f"{self.id} {which}: {self._promised} cells were saved, {count} came back; {known}")
        if count > self._done + 1:  # the answer to the last one may have been lost with its kernel
            self.violations.append(f"{self.id} {which}: {count} cells came back, of {self._done}")
        if count < 0:
            self._run(kernel, "n = 0")
            count = 0
        elif self._promised:
            self.returns += 1
        self._done, self._promised = count, min(self._promised, count)

    def _same(self, kernel: BlockingKernelClient, which: tuple[int, int]) -> None:
        count = int(self._value(kernel, "n"))
        if count not in (self._done, self._done + 1):  # the last answer may have been lost, and nothing else
            self.violations.append(f"{self.id} {which}: {self._done} cells have run, the kernel counts {count}")
        self._done = count

    def _await_restored(self, client: Client, which: tuple[int, int]) -> None:
        end = time.monotonic() + SAVED_S
        while time.monotonic() < end:
            if not self._still(client, which).restore_offered:
                return
            time.sleep(0.1)

    def _still(self, client: Client, which: tuple[int, int]) -> Workload:
        """Raises: Gone: it is another kernel by now, or none."""
        workload = client.workload(self.id)
        if workload.state != "running" or (workload.incarnation, workload.generation) != which or workload.kernel_died:
            raise Gone
        return workload

    def _count(self, kernel: BlockingKernelClient) -> None:
        self._run(kernel, "n += 1")
        self._done += 1
        self.cells += 1

    def _save(self, client: Client, kernel: BlockingKernelClient) -> None:
        count, asked_s = self._done, time.time()
        try:
            client.checkpoint(self.id)
        except ClientError:
            return
        end = time.monotonic() + SAVED_S
        while time.monotonic() < end:
            saved = client.workload(self.id).checkpoint
            if saved is not None and saved.at_s - saved.duration_s >= asked_s:
                self._promised = count
                self.promises += 1
                return
            if self._value(kernel, "n") != str(count):
                raise Gone
            time.sleep(0.1)

    # ------------------------------------------------------------------ the kernel

    def _run(self, kernel: BlockingKernelClient, code: str, **more: Any) -> dict[str, Any]:
        """The reply to a cell. Raises: Gone: there was none, or the kernel was about to leave."""
        sent = kernel.execute(code, allow_stdin=False, **more)
        end = time.monotonic() + CELL_S
        while (left := end - time.monotonic()) > 0:
            try:
                reply = kernel.get_shell_msg(timeout=min(left, 0.5))
            except Empty:
                with suppress(ClientError):
                    self._still_here()
                continue
            if reply["parent_header"].get("msg_id") == sent:
                content: dict[str, Any] = reply["content"]
                if content["status"] != "ok":
                    break
                return content
        raise Gone

    def _value(self, kernel: BlockingKernelClient, expression: str) -> str:
        reply = self._run(kernel, "", user_expressions={"value": expression}, store_history=False)
        value = reply["user_expressions"]["value"]
        if value["status"] != "ok":
            raise Gone
        return str(value["data"]["text/plain"])
