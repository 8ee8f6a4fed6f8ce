"""``%gpufair status``, ``why`` and ``budget``: what the scheduler says of this session, in the words of the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpufair.core.errors import GpufairError

if TYPE_CHECKING:
    from gpufair.client import Client, Workload

_PATIENCE_S = 3.0  # a cell waits for it


class NoLab(GpufairError):
    """The kernel cannot ask the scheduler."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"this kernel cannot ask the scheduler ({self.why}); the status bar and the side panel of the notebook can"


def commands() -> dict[str, Callable[[str], None]]:
    """The words that ``%gpufair`` knows about the lab; nothing is imported before one is used."""
    return {"status": _status, "why": _why, "budget": _budget}


def _ask(answer: Callable[[Client, Workload], None]) -> None:
    from gpufair.client import Client  # noqa: PLC0415 - an HTTP client, which most kernels never need
    from gpufair.client.exchange import Patience  # noqa: PLC0415

    mine = os.environ.get("GPUFAIR_WORKLOAD")
    if not mine:
        raise NoLab("it is no session of the scheduler")
    try:
        with Client(patience=Patience(timeout_s=_PATIENCE_S, total_s=_PATIENCE_S)) as client:
            answer(client, client.workload(mine.partition(".cpu-")[0]))
    except GpufairError as err:
        raise NoLab(str(err)) from None


def _status(_: str) -> None:
    from gpufair.cli import words  # noqa: PLC0415
    from gpufair.cli.output import line  # noqa: PLC0415

    def tell(_: Client, session: Workload) -> None:
        now = time.time()
        nodes = ", ".join(lease.node for lease in session.leases)
        parts = [
            f"{words.clean(session.label)} ({session.id[:8]}) is {words.what(session)}",
            f"GPUs: {words.shape(session)}{f' on {nodes}' if nodes else ''}",
            f"protected: {words.protection(session, now)}",
            f"budget: {words.clean(session.allocation)}, charged {words.gpu_time(session.charged_gpu_s)}",
        ]
        if session.checkpoint is not None:
            parts.append(f"saved {words.ago(session.checkpoint.at_s, now)} ago, {words.size(session.checkpoint.size_bytes)}")
        line("\n".join(parts))

    _ask(tell)


def _why(_: str) -> None:
    from gpufair.cli.explained import print_explanation  # noqa: PLC0415

    def tell(client: Client, session: Workload) -> None:
        known = {workload.id: workload for workload in client.workloads()}
        print_explanation(client.why(session.id), known, time.time())

    _ask(tell)


def _budget(_: str) -> None:
    from gpufair.cli.explained import print_standing  # noqa: PLC0415

    _ask(lambda client, session: print_standing(client.budgets_why(session.allocation)))
