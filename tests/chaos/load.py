"""Batch work of many kinds, submitted as people do it: with an id, and again with the same one when no answer came."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpufair.client import Client, ClientError
from tests.chaos.lab import Lab
from tests.chaos.somebody import Somebody

JOB = Path(__file__).with_name("job.py")


@dataclass(frozen=True, slots=True)
class Batch:
    """What somebody was told would be done. ``tried_again``: a failure is not the end. ``stopped``: its owner ended it."""

    id: str
    nodes: int
    tried_again: bool
    stopped: bool = False


class Load(Somebody):
    """Keeps about ``live`` batch workloads queued or running."""

    def __init__(self, lab: Lab, seed: int, live: int) -> None:
        super().__init__(lab, seed, "load")
        self._live = live
        self.acknowledged: dict[str, Batch] = {}

    def work(self, client: Client) -> None:
        """Submit, and now and then stop something."""
        while not self.over.wait(0.1):
            live = {one.id for one in client.workloads() if one.kind == "batch" and one.live}
            if len(live) < self._live:
                self._one_more(client)
            elif self.draw.random() < 0.02:
                name = self.draw.choice(sorted(live))
                self.acknowledged[name] = replace(self.acknowledged[name], stopped=True)
                with suppress(ClientError):  # it may have ended, or go on where no service answered
                    client.stop(name)

    def _one_more(self, client: Client) -> None:
        draw, name = self.draw, f"b{len(self.acknowledged)}"
        again = draw.random() < 0.7
        nodes = 2 if draw.random() < 0.2 else 1
        argv = [sys.executable, str(JOB), str(self.lab.proof), f"{draw.uniform(0.2, 3):.2f}"]
        spec: dict[str, Any] = {
            "kind": "batch",
            "allocation": draw.choice("ab"),
            "gpus": 2 if nodes == 1 and draw.random() < 0.1 else 1,
            "nodes": nodes,
            "min_runtime_s": draw.choice((0.0, 0.1, 0.5, 5.0)),
            "resumable": False,
        }
        if again:
            spec |= {"retries": 100, "retry_after_s": 0.2}
        self.submit(client, name, {"type": "command", "argv": argv, "cwd": str(self.lab.folder)}, **spec)
        self.acknowledged[name] = Batch(name, nodes, again)
