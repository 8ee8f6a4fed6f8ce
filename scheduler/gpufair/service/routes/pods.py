"""What agents in pods say. The gate has made sure that the token is that of the pod in the path."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request

from gpufair.client.answers import Acknowledged, Commands, Welcome
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import POD_PATTERN, Reports
from gpufair.wire import COMMAND_WAIT_S, MAX_BOOT, AgentHello, Report, from_json, hello_proof, to_json

router = APIRouter(prefix="/pods/{pod}")
Pod = Annotated[str, Path(pattern=POD_PATTERN)]
Boot = Annotated[str, Query(min_length=1, max_length=MAX_BOOT)]


@router.post("/hello", responses=answers(Welcome))
async def hello(request: Request, pod: Pod, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """The agent in a pod came up, or found a restarted service."""
    it, said = context(request), from_json(AgentHello, body)
    answer = await it.pods.hello(pod, said)
    return answer | {"proof": hello_proof(it.secrets.pod_token(pod), said.boot)}


@router.get("/commands", responses=answers(Commands))
async def commands(
    request: Request,
    pod: Pod,
    boot: Boot,
    after: Annotated[int, Query(ge=0)] = 0,
    wait_s: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False)] = COMMAND_WAIT_S,
) -> dict[str, Any]:
    """What the pod is to do next; waits for something if there is nothing."""
    pods = context(request).pods
    found = await pods.commands(pod, after, boot, wait_s)
    return {"commands": [to_json(command) for command in found], "epoch": pods.epoch}


@router.post("/reports", responses=answers(Acknowledged))
async def reports(request: Request, pod: Pod, body: Reports) -> dict[str, Any]:
    """What happened in a pod; durable when this is answered. May be empty: a heartbeat."""
    told = [from_json(Report, report) for report in body.reports]
    pods = context(request).pods
    acked = await pods.reports(pod, body.boot, told)
    pods.told(pod, body.problems, body.now_s)
    return {"acked": acked, "epoch": pods.epoch}
