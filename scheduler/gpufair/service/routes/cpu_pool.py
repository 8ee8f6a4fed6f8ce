"""The CPU pool of the service."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from gpufair.client.machines import CpuPool
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.identity.auth import Principal
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import JoinPool

router = APIRouter()
Answer = dict[str, Any]


@router.get("/cpu-pool", responses=answers(CpuPool))
async def cpu_pool(request: Request) -> Answer:
    """Where it is and how it is, and what each allocation had of it; starts nothing."""
    pool = context(request).cpu_pool
    return _shown(pool.view(), principal(request)) | await pool.usage()


def _shown(view: Answer, who: Principal) -> Answer:
    """Where its log lies is for operators, as the state folder is."""
    return view if who.sees_all else {name: value for name, value in view.items() if name != "log"}


@router.post("/cpu-pool/join", responses=answers(CpuPool))
async def join(request: Request, body: Annotated[JoinPool | None, Body()] = None) -> Answer:
    """The same, with what opens it and with whose tasks those of the caller are; starts it, if nobody has asked before.

    They are those of ``workload``, where it is the caller's; else of the first allocation that is open to him.
    """
    it, who = context(request), principal(request)
    named = WorkloadId(body.workload) if body is not None and body.workload else None

    def whom(state: State) -> tuple[str, str]:
        record = state.facts.records.get(named) if named is not None else None
        if record is not None and who.owns(record.spec.user):
            return str(record.spec.allocation), record.spec.user
        return str(next(iter(state.tree.open_to(who.name)), "")), who.name

    allocation, user = await it.runtime.read(whom, () if named is None else (named,))
    return _shown(await it.cpu_pool.join(), who) | {"allocation": allocation, "user": user}
