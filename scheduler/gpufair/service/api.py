"""The HTTP API as one ASGI application: the gate, the routes, and errors in one shape."""

from __future__ import annotations

import asyncio
import logging
from functools import cache, partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from gpufair.client.answers import Health
from gpufair.core.errors import GpufairError
from gpufair.service.lifecycle.reloading import Reloader
from gpufair.service.problems import problem, problem_of, status_of, wait_of
from gpufair.service.routes import (
    agents,
    amending,
    announcements,
    budget_requests,
    checkpoints,
    cluster,
    cpu_pool,
    dashboard,
    events,
    figures,
    foresight,
    identity,
    kernels,
    maintenance,
    monitoring,
    overview,
    pods,
    pools,
    reloading,
    snapshot,
    tour,
    workloads,
)
from gpufair.service.web.context import Context
from gpufair.service.web.contract import answers, document
from gpufair.service.web.express import Express
from gpufair.service.web.gate import Gate, is_loopback
from gpufair.service.web.rights import authorize, declared, key_of

PREFIX = "/api/v1"
# Asked hundreds of times a second in a large lab.
OFTEN = frozenset(
    {
        "POST /workloads",
        "POST /agents/{node}/reports",
        "GET /agents/{node}/commands",
        "POST /pods/{pod}/hello",
        "POST /pods/{pod}/reports",
        "GET /pods/{pod}/commands",
    }
)
_log = logging.getLogger(__name__)


def routed(version: str) -> FastAPI:
    """All routes, and nothing behind them: enough for the contract."""
    app = FastAPI(
        title="jupyter-gpufair",
        version=version,
        openapi_url=f"{PREFIX}/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(authorize)],
    )
    api = APIRouter(prefix=PREFIX)
    # Each request is compared with one after the other: those first that come most often.
    for part in (
        agents.router,
        pods.router,
        workloads.router,
        kernels.router,
        events.router,
        amending.router,
        checkpoints.router,
        cluster.router,
        budget_requests.router,
        cpu_pool.router,
        foresight.router,
        figures.router,
        maintenance.router,
        announcements.router,
        pools.router,
        overview.router,
        reloading.router,
        dashboard.api,
        identity.router,
        snapshot.router,
        tour.router,
    ):
        declared(part.routes)
        api.include_router(part)
    api.add_api_route("/healthz", healthz, methods=["GET"], include_in_schema=False)
    app.include_router(api)
    for part in (dashboard.router, monitoring.router):
        declared(part.routes)
        app.include_router(part)
    app.add_api_route("/healthz", healthz, methods=["GET"], responses=answers(Health))
    app.openapi = cache(partial(document, app))  # type: ignore[method-assign]  # as FastAPI would have it
    return app


def build_app(it: Context) -> FastAPI:
    """The application of a service. No page but itself may use it: there is no CORS, and foreign names are refused."""
    app = routed(it.version)
    app.state.context = it
    app.state.reloader = Reloader(app)
    app.state.touring = asyncio.Semaphore(1)  # see ``routes.tour``
    app.add_exception_handler(GpufairError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)
    # Who listens on other addresses has a name that we cannot know, and asks for a token all the same.
    hosts = it.config.service.names if is_loopback(it.config.service.host) else None
    short = [one for one in (*workloads.router.routes, *agents.router.routes, *pods.router.routes) if isinstance(one, APIRoute)]
    often = [one for one in short if any(key_of(one, method) in OFTEN for method in one.methods or ())]
    app.add_middleware(Express, routes=often, prefix=PREFIX)
    app.add_middleware(Gate, authenticator=it.authenticator, hosts=hosts, per_s=it.config.service.requests_per_s)
    return app


async def healthz() -> dict[str, bool]:
    """It answers. Needs no token and tells nothing else."""
    return {"ok": True}


def _json(status: HTTPStatus, body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, status_code=int(status), media_type="application/problem+json")


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, GpufairError)
    answer = _json(status_of(error), problem_of(error))
    if (wait_s := wait_of(error)) is not None:
        answer.headers["retry-after"] = str(wait_s)
    return answer


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    said = []
    for one in error.errors()[:8]:
        where = ".".join(str(part) for part in one["loc"] if part != "body")[:200]
        said.append(f"{where}: {one['msg']}" if where else str(one["msg"]))
    return _json(
        HTTPStatus.UNPROCESSABLE_ENTITY, problem(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(said), "InvalidRequest")
    )


async def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    answer = _json(status, problem(status, str(error.detail), status.phrase.replace(" ", "")))
    answer.headers.update(error.headers or {})
    return answer


async def _broken(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _json(
        status, problem(status, "an internal error was met; the service's log has the details", "InternalError")
    )
