"""What routes do with one workload: see whose it is, act on it, show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path, Query, Request

from gpufair.core.errors import WrongPhase
from gpufair.core.model import HOLDING, Phase
from gpufair.core.record import Workload
from gpufair.core.units import WorkloadId
from gpufair.service.identity.auth import Principal
from gpufair.service.problems import Forbidden
from gpufair.service.web.context import Context, context, principal
from gpufair.service.web.models import ID_PATTERN
from gpufair.service.workloads import standin
from gpufair.service.workloads.details import Pending
from gpufair.service.workloads.turn import Turn
from gpufair.service.workloads.views import masked

Id = Annotated[str, Path(pattern=ID_PATTERN)]
Answer = dict[str, Any]
Fields = Annotated[str | None, Query(max_length=1024)]


def shown(view: Answer, who: Principal) -> Answer:
    """A Workload object as far as ``who`` may see it."""
    return view if who.owns(view["user"]) else masked(view)


def listed(views: Iterable[Answer], who: Principal, fields: str | None) -> list[Answer]:
    """Workload objects as far as ``who`` may see them; with ``fields`` ("id,user") only those of them that there are."""
    found = (shown(view, who) for view in views)
    if fields is None:
        return list(found)
    wanted = fields.split(",")
    return [{name: view[name] for name in wanted if name in view} for view in found]


async def owned(request: Request, workload: str) -> Workload:
    """A workload of the caller's.

    Raises:
        UnknownWorkload: There is none.
        Forbidden: It is somebody else's.
    """
    name = WorkloadId(workload)
    known = await context(request).runtime.read(lambda state: state.workload(name), (name,))
    principal(request).require_owner(known.spec.user, f"workload {workload!r}")
    return known


async def act(
    request: Request, workload: str, step: Callable[[Turn, Workload], None], *, kernel: bool = False
) -> Answer:
    """Run ``step`` on a workload of the caller's; answer with what became of it.

    Args:
        kernel: It is about the kernel: on the stand-in where that runs it.
    """
    it, who = context(request), principal(request)

    def checked(turn: Turn) -> None:
        known = turn.state.workload(WorkloadId(workload))
        who.require_owner(known.spec.user, f"workload {workload!r}")
        there = standin.of(turn.state, turn.detail(known.id)) if kernel else None
        step(turn, known if there is None or there.phase not in HOLDING else there)

    return (await it.runtime.do_to(WorkloadId(workload), checked))[1]


def require_running(known: Workload, asked: str, instead: str) -> None:
    """Refuse what only a running kernel can do.

    Raises:
        WrongPhase: It doesn't run.
        Forbidden: It is no kernel.
    """
    require_kernel(known, asked)
    if known.phase is not Phase.RUNNING:
        raise WrongPhase(known.id, known.phase, asked, instead)


def require_kernel(known: Workload, asked: str) -> None:
    """Refuse what only kernels can do. Raises ``Forbidden``."""
    if known.spec.launch.get("type") != "kernel":
        raise Forbidden(f"workload {known.id!r} is a command: only kernels can be asked to {asked}")


def command(it: Context, turn: Turn, known: Workload, kind: str, args: Answer) -> None:
    """Send a user's command once it is durable; until a report answers it, it is repeated to an agent that comes back."""
    detail = turn.detail(known.id)
    others = tuple(pending for pending in detail.pending if pending.kind != kind)
    turn.set_detail(known.id, replace(detail, pending=(*others, Pending(kind, known.incarnation, args))))
    turn.after(lambda: it.hub.send(known, kind, args))
