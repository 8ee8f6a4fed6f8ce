"""A workload's checkpoints, for its owner: list and check them, remove old ones, take one away as a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from gpufair.client.answers import CheckedCheckpoints, Checkpoints, Removed
from gpufair.service.insight import kept
from gpufair.service.web.acting import Answer, Id, owned
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers, streams
from gpufair.service.web.models import Nothing, Pruning

router = APIRouter(prefix="/workloads")


async def _there(request: Request, workload: str, work: Callable[[str, bytes], Any]) -> Any:
    """``work`` on the place of the checkpoints of a workload of the caller's, with its key; in a thread."""
    it = context(request)
    known = await owned(request, workload)
    directory = it.dispatcher.checkpoint_dir(known.spec.user, known.id)
    return await asyncio.to_thread(work, directory, bytes.fromhex(it.secrets.checkpoint_key(known.spec.user)))


@router.get("/{workload}/checkpoints", responses=answers(Checkpoints))
async def checkpoints(request: Request, workload: Id) -> Answer:
    """Its checkpoints that are still there, newest first; only for its owner."""
    it = context(request)
    known = await owned(request, workload)
    reported = it.runtime.detail(known.id).checkpoints
    directory = it.dispatcher.checkpoint_dir(known.spec.user, known.id)
    return {"checkpoints": await asyncio.to_thread(kept.present, directory, reported)}


@router.post("/{workload}/checkpoints/verify", responses=answers(CheckedCheckpoints))
async def verify(request: Request, workload: Id, body: Nothing | None = None) -> Answer:
    """Read each one from end to end; nothing of it is run. Newest first."""
    return {"checkpoints": await _there(request, workload, kept.verified)}


@router.post("/{workload}/checkpoints/prune", responses=answers(Removed))
async def prune(request: Request, workload: Id, body: Pruning) -> Answer:
    """Remove all but the newest, and what dead saves have left."""
    return {
        "removed": await _there(request, workload, lambda directory, key: kept.pruned(directory, key, body.keep, body.keep_s))
    }


@router.get(
    "/{workload}/checkpoints/{checkpoint}/export",
    response_class=StreamingResponse,
    responses=streams("application/x-tar", "It can be loaded where it is unpacked."),
)
async def export(request: Request, workload: Id, checkpoint: str) -> StreamingResponse:
    """One checkpoint with all that it needs, as a tar file."""
    parts = await _there(request, workload, lambda directory, key: kept.exported(directory, key, checkpoint))
    return StreamingResponse(parts, media_type="application/x-tar")
