"""For those who watch the service: whether it can decide, and its figures for Prometheus."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from gpufair.client.answers import Readiness
from gpufair.service.insight.metrics import CONTENT_TYPE, exposition, families
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers, streams

router = APIRouter()


@router.get("/readyz", responses=answers(Readiness) | answers(Readiness, 503))
async def readyz(request: Request) -> JSONResponse:
    """Whether work can be taken in: 200, or 503 with the reason. Needs no token and tells nothing else."""
    problem = context(request).runtime.problem
    if problem:
        return JSONResponse({"ready": False, "detail": problem}, status_code=int(HTTPStatus.SERVICE_UNAVAILABLE))
    return JSONResponse({"ready": True})


@router.get("/metrics", response_class=Response, responses=streams("text/plain", "Prometheus' text format."))
async def metrics(request: Request) -> Response:
    """The figures in Prometheus' text format. Needs a token, as the budgets do: scrape with a bearer token."""
    it = context(request)
    told = await it.runtime.think(families)
    body = await asyncio.to_thread(exposition, it.runtime.meter, told, it.version)
    return Response(body, media_type=CONTENT_TYPE)
