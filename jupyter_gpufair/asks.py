"""``%gpufair status``, ``why`` and ``budget``: what the scheduler says of this session, in the words of the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpufair.cli.explained import print_explanation, print_standing
from gpufair.cli.output import line
from gpufair.cli.words import ago, clean, gpu_time, protection, shape, size, what
from gpufair.client import Client
from gpufair.client.exchange import Patience
from gpufair.core.errors import GpufairError

if TYPE_CHECKING:
    from gpufair.client import Workload

_PATIENCE_S = 3.0  # a cell waits for it


class NoLab(GpufairError):
    """The kernel cannot ask the scheduler."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"this kernel cannot ask the scheduler ({self.why}); the status bar and the side panel of the notebook can"


def _ask(answer: Callable[[Client, Workload], None]) -> None:
    mine = os.environ.get("GPUFAIR_WORKLOAD")
    if not mine:
        raise NoLab("it is no session of the scheduler")
    try:
        with Client(patience=Patience(timeout_s=_PATIENCE_S, total_s=_PATIENCE_S)) as client:
            answer(client, client.workload(mine.partition(".cpu-")[0]))
    except GpufairError as err:
        raise NoLab(str(err)) from None


def status(_: str) -> None:
    """Print this session's state, GPUs, protection, budget and last checkpoint."""

    def tell(_: Client, session: Workload) -> None:
        now = time.time()
        nodes = ", ".join(lease.node for lease in session.leases)
        parts = [
            f"{clean(session.label)} ({session.id[:8]}) is {what(session)}",
            f"GPUs: {shape(session)}{f' on {nodes}' if nodes else ''}",
            f"protected: {protection(session, now)}",
            f"budget: {clean(session.allocation)}, charged {gpu_time(session.charged_gpu_s)}",
        ]
        if session.checkpoint is not None:
            parts.append(f"saved {ago(session.checkpoint.at_s, now)} ago, {size(session.checkpoint.size_bytes)}")
        line("\n".join(parts))

    _ask(tell)


def why(_: str) -> None:
    """Print why it is where it is, and what could take its GPUs."""

    def tell(client: Client, session: Workload) -> None:
        known = {workload.id: workload for workload in client.workloads()}
        print_explanation(client.why(session.id), known, time.time())

    _ask(tell)


def budget(_: str) -> None:
    """Print how its allocation stands among its siblings."""
    _ask(lambda client, session: print_standing(client.budgets_why(session.allocation)))
