"""Asking for something else while waiting."""

from __future__ import annotations

from fastapi import APIRouter, Request

from gpufair.client.types import Workload as WorkloadView
from gpufair.core.record import Workload
from gpufair.service.problems import BadRequest, Forbidden
from gpufair.service.web.acting import Answer, Id, act
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Amendment
from gpufair.service.workloads import amending, standin
from gpufair.service.workloads.turn import Turn

router = APIRouter(prefix="/workloads")


@router.patch("/{workload}", responses=answers(WorkloadView))
async def amend(request: Request, workload: Id, body: Amendment) -> Answer:
    """Have a workload that waits or rests ask for something else; it keeps its id and its place.

    What is left out stays. One that asks for this already is answered as it is, so that repeating does nothing.
    """
    if not body.model_fields_set:
        raise BadRequest("nothing is to be changed: name what, like gpus or min_runtime_s")
    it, wanted = context(request), body.wanted()

    def step(turn: Turn, known: Workload) -> None:
        if standin.session_of(known.spec) is not None:
            raise Forbidden(f"workload {known.id!r} stands in for a session on a CPU node; amend the session")
        amending.amend(turn, known.id, wanted, it.config)

    return await act(request, workload, step)
