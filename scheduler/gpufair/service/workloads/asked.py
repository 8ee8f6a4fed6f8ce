"""What somebody asked the runtime for, and how it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpufair.core.errors import GpufairError
from gpufair.core.units import WorkloadId
from gpufair.service.storage.audit import Doer
from gpufair.service.workloads.turn import Turn

R = TypeVar("R")
Step = Callable[[Turn], R]

MAX_WAITING = 10_000  # steps; beyond it the service says that it is overloaded


class Overloaded(GpufairError):
    """Too many requests wait already."""

    def __str__(self) -> str:
        return f"{MAX_WAITING} requests wait for the scheduler already; try again in a few seconds"


class InternalError(GpufairError):
    """A bug: the request was not carried out and the state is as it was before."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"an internal error ({self.what}) was met, and nothing was changed; the service's log has the details"


class Closed(GpufairError):
    """The service is ending."""

    def __str__(self) -> str:
        return "the service is ending; it can be asked again once it has been restarted"


@dataclass(eq=False, slots=True)
class Asked(Generic[R]):
    step: Step[R]
    done: asyncio.Future[R]
    doer: Doer | None = None  # the request that asked, for the audit
    result: Any = None
    error: GpufairError | None = None
    about: WorkloadId | None = None  # whoever asks wants to see this one, as it is once the step is durable
    view: dict[str, Any] | None = None
    looks_at: tuple[WorkloadId, ...] = ()  # whom the step finds in the state even if they ended long ago
    since: float = field(default_factory=time.monotonic)  # when it was asked

    def answer(self) -> None:
        if self.done.done():
            return  # whoever asked has gone
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.result)

    def fail(self, error: GpufairError) -> None:
        self.error = error
        self.answer()
