"""One notebook, preempted and killed at random moments, as a service and a user would bring it back each time."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from gpufair.wire import Report
from tests.integration.node.rig import KEY, Rig, until
from tests.preemptions.notebook import DIGEST, SETUP, cell, undisturbed

LIMIT_S = 60.0
GRACE_S = (2.0, 5.0)
NOT_SAVED = {"guard", "scratch"}  # a lock and a generator, which the notebook does not need again


class Broken(AssertionError):
    """What must never happen has happened."""


class Play:
    """Of one workload on a rig. All that is random comes from ``seed``."""

    def __init__(self, rig: Rig, workload: str, seed: int) -> None:
        self.rig, self.workload, self.seed = rig, workload, seed
        self.draw = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._incarnation = 0
        self._promised = 0  # cells that a checkpoint is known to hold
        self._client: BlockingKernelClient | None = None

    def run(self, count: int) -> None:
        """Preempt (or kill) it ``count`` times, let it end, and compare. Raises ``Broken``, with the seed."""
        try:
            done = 0
            for _ in range(count):
                done = self._stay()
            done = self._stay(last=True)
            found, expected = json.loads(self._ask(DIGEST)), undisturbed(done)
            differ = [part for part in expected if found[part] != expected[part]]
            self._expect(not differ, f"the result after {done} cells differs in {differ}")
        except Broken:
            raise
        except Exception as err:
            raise Broken(f"seed {self.seed}, {self.workload}, incarnation {self._incarnation}: {err!r}") from err
        finally:
            self._leave()
        self.counts["cells"] = done

    # ---------------------------------------------------------------- one stay on the node

    def _stay(self, *, last: bool = False) -> int:
        """From a start to the release. How many cells are done (by what came back; at the end: in all)."""
        self._incarnation += 1
        checkpoint = self._newest()
        restore = {} if checkpoint is None else {"restore": checkpoint["id"]}
        sequence = 1 if checkpoint is None else checkpoint["sequence"] + 1
        self.rig.start(
            self.workload, incarnation=self._incarnation, next_sequence=sequence, autosave_share=0.2, **restore
        )
        if not last and self.draw.random() < 0.25:
            self._disturb("restore", self.draw.uniform(0.0, 1.5))
            return self._promised
        served = self._wait("serving")
        connection = served.body["connection"]
        self._connect(connection)
        self._check_losses(served.body["lost"], checkpoint)
        if self._ask("'done' in globals()") == "False":
            # Nothing was saved yet, or a session in which nothing had been run.
            self._expect(self._promised == 0, "what was saved did not come back")
            self._cell(SETUP, LIMIT_S)
        done = int(self._ask("done"))
        self._expect(done >= self._promised, f"{done} cells came back, of {self._promised} that were saved")
        self._promised = done if checkpoint is not None else 0
        until_s = time.monotonic() + self.draw.uniform(0.0, 2.5)
        while time.monotonic() < until_s or (last and done < self._promised + 7):
            if not self._cell(cell(done + 1), LIMIT_S if last else max(until_s - time.monotonic(), 0.0)):
                break
            done += 1
        if last:
            return done
        self._disturb("work" if self.draw.random() < 0.3 else "save", 0.0, done)
        self._leave()
        return done

    def _disturb(self, moment: str, after_s: float, done: int | None = None) -> None:
        """Preempt, kill, or both; then wait for the end."""
        time.sleep(after_s)
        kills = moment == "work" or self.draw.random() < 0.4
        preempts = moment != "work" and (moment == "save" or self.draw.random() < 0.5)
        if preempts:
            self.rig.preempt(self.workload, self.draw.uniform(*GRACE_S), self._incarnation)
            if kills:
                time.sleep(self.draw.choice((self.draw.uniform(0.0, 0.05), self.draw.uniform(0.0, 0.4))))
        if kills or not preempts:
            self._kill(self.draw.choice(("kernel", "supervisor")))
            self.counts[f"kills at {moment}"] += 1
        if preempts:
            self.counts["preemptions"] += 1
        if not preempts:
            # The user ends it, and the service starts it again from the last checkpoint.
            self.rig.service.command("stop", self.workload, self._incarnation)
        self._ended()
        if preempts and not kills and done is not None:
            self._expect(self._saved_here(), "a preemption with nothing in its way did not save")
            self._promised = done

    def _kill(self, what: str) -> None:
        """kill -9, if it is there yet."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            status = self.rig.status(self.workload, self._incarnation)
            os.kill(status["pid"] if what == "supervisor" else status["child"][0], signal.SIGKILL)

    def _check_losses(self, lost: list[list[str]], checkpoint: dict[str, Any] | None) -> None:
        if checkpoint is None:
            return
        self._expect({name for name, _ in lost} <= NOT_SAVED, f"checkpoint {checkpoint['id']} came back without {lost}")
        self.counts["restores"] += 1

    # ---------------------------------------------------------------- what is known

    def _reports(self, kind: str | None = None) -> list[Report]:
        return self.rig.service.of(self.workload, kind, self._incarnation)

    def _wait(self, kind: str) -> Report:
        return self.rig.service.wait(self.workload, kind, timeout_s=LIMIT_S, incarnation=self._incarnation)

    def _ended(self) -> None:
        until(
            lambda: [r for r in self._reports() if r.kind in {"released", "start_failed"}],
            LIMIT_S,
            f"incarnation {self._incarnation} of {self.workload} has ended",
        )

    def _newest(self) -> dict[str, Any] | None:
        """The newest checkpoint of which the service was told."""
        service = self.rig.service
        with service.changed:
            bodies = [r.body for r in service.reports if (r.workload, r.kind) == (self.workload, "checkpointed")]
        return max(bodies, key=lambda body: int(body["sequence"]), default=None)

    def _saved_here(self) -> bool:
        kinds = [report.kind for report in self._reports()]
        return "checkpointed" in kinds

    def _expect(self, true: bool, otherwise: str) -> None:
        if not true:
            kinds = [(r.kind, r.body) for r in self._reports()][-8:]
            raise Broken(f"seed {self.seed}, {self.workload}, incarnation {self._incarnation}: {otherwise}; {kinds}")

    # ---------------------------------------------------------------- the kernel

    def _connect(self, connection: dict[str, Any]) -> None:
        client = BlockingKernelClient()
        info: Any = {"key": KEY, "transport": "tcp", "signature_scheme": "hmac-sha256"}
        client.load_connection_info(info | connection)
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
        self._client = client

    def _leave(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client = None

    def _cell(self, code: str, within_s: float, **more: Any) -> dict[str, Any] | None:
        """The reply to a cell that ended well in time; None: it still runs."""
        assert self._client is not None
        sent = self._client.execute(code, allow_stdin=False, **more)
        end = time.monotonic() + within_s
        while (left := end - time.monotonic()) > 0:
            try:
                reply = self._client.get_shell_msg(timeout=left)
            except Empty:
                break
            if reply["parent_header"].get("msg_id") == sent:
                content: dict[str, Any] = reply["content"]
                self._expect(content["status"] == "ok", f"a cell failed: {content}")
                return content
        return None

    def _ask(self, expression: str) -> str:
        reply = self._cell("", LIMIT_S, user_expressions={"value": expression}, store_history=False)
        self._expect(reply is not None, "the kernel does not answer")
        assert reply is not None
        value = reply["user_expressions"]["value"]
        self._expect(value["status"] == "ok", f"{expression}: {value}")
        return str(value["data"]["text/plain"]).strip("'")
