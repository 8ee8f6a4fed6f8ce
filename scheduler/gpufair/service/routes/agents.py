"""What agents say. The gate has made sure that the token is that of the node in the path."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request

from gpufair.client.answers import Acknowledged, Commands, NodeCheck, Welcome
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import NAME_PATTERN, Reports
from gpufair.wire import API_VERSION, COMMAND_WAIT_S, MAX_BOOT, AgentHello, Report, from_json, hello_proof, to_json

router = APIRouter(prefix="/agents/{node}")
Node = Annotated[str, Path(pattern=NAME_PATTERN)]
Boot = Annotated[str, Query(min_length=1, max_length=MAX_BOOT)]


@router.post("/hello", responses=answers(Welcome))
async def hello(request: Request, node: Node, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """An agent came up, or found a restarted service."""
    it, said = context(request), from_json(AgentHello, body)
    answer = await it.hub.hello(node, said)
    return answer | {"proof": hello_proof(it.secrets.agent_token(node), said.boot)}


@router.get("/commands", responses=answers(Commands))
async def commands(
    request: Request,
    node: Node,
    boot: Boot,
    after: Annotated[int, Query(ge=0)] = 0,
    wait_s: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False)] = COMMAND_WAIT_S,
) -> dict[str, Any]:
    """What is to be done next; waits for something if there is nothing."""
    hub = context(request).hub
    found = await hub.commands(node, after, boot, wait_s)
    return {"commands": [to_json(command) for command in found], "epoch": hub.epoch}


@router.post("/reports", responses=answers(Acknowledged))
async def reports(request: Request, node: Node, body: Reports) -> dict[str, Any]:
    """What happened; durable when this is answered. May be empty: a heartbeat."""
    told = [from_json(Report, report) for report in body.reports]
    hub = context(request).hub
    acked = await hub.reports(node, body.boot, told)
    hub.told(node, body.problems, body.now_s)
    return {"acked": acked, "epoch": hub.epoch}


@router.get("/check", responses=answers(NodeCheck))
async def check(request: Request, node: Node, boot: Boot) -> dict[str, Any]:
    """For who sets up a node: whether all fits together. Changes nothing, and is no sign of life."""
    it = context(request)
    return {
        "proof": hello_proof(it.secrets.agent_token(node), boot),
        "known": it.hub.knows(node),
        "heard": it.hub.heard(node),
        "version": it.version,
        "api_version": API_VERSION,
        "now_s": it.runtime.now() / 1000,
    }
