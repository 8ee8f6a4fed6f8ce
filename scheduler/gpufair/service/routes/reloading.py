"""Reading the configuration again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from gpufair.client.answers import Reloaded
from gpufair.service.web.contract import answers

router = APIRouter()


@router.post("/reload", responses=answers(Reloaded))
async def reload(request: Request) -> dict[str, Any]:
    """Read gpufair.toml again, and take into use what can be without a restart; sessions and queue go on."""
    return asdict(await request.app.state.reloader.reload())
