"""Pools: clusters, each with a ledger of its own. How they are, and taking a whole one out of service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request

from gpufair.client.pools import Pools, PoolView
from gpufair.core import events as ev
from gpufair.core.units import NodeName, PoolName, after
from gpufair.service.nodes.kept import taken_over
from gpufair.service.web.context import Context, context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import NAME_PATTERN, Drain
from gpufair.service.workloads import pools
from gpufair.service.workloads.submission import span_of
from gpufair.service.workloads.turn import Turn

router = APIRouter(prefix="/pools")
Answer = dict[str, Any]
Pool = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get("", responses=answers(Pools))
async def listing(request: Request) -> Answer:
    """All pools, the default one first."""
    it = context(request)
    return {"pools": await it.runtime.read(partial(pools.pools_view, it.config))}


@router.post("/{pool}/cordon", responses=answers(PoolView))
async def cordon(request: Request, pool: Pool) -> Answer:
    """Let nothing new start on any of its nodes; what runs leaves as its protection ends."""
    return await _all_nodes(request, pool, lambda turn, node: ev.NodeCordoned(turn.now, turn.cause(), node))


@router.post("/{pool}/uncordon", responses=answers(PoolView))
async def uncordon(request: Request, pool: Pool) -> Answer:
    """Let all of its nodes take workloads again."""
    return await _all_nodes(request, pool, lambda turn, node: ev.NodeUncordoned(turn.now, turn.cause(), node))


@router.post("/{pool}/drain", responses=answers(PoolView))
async def drain(request: Request, pool: Pool, body: Annotated[Drain | None, Body()] = None) -> Answer:
    """Empty a whole pool, by a time if one is named; ``force`` cuts protections that last longer."""
    wanted = body or Drain()
    within = None if wanted.within_s is None else span_of(wanted.within_s, "within_s")

    def drained(turn: Turn, node: NodeName) -> ev.Event:
        deadline = None if within is None else after(turn.now, within)
        return ev.NodeDrained(turn.now, turn.cause(), node, deadline, wanted.force)

    return await _all_nodes(request, pool, drained)


async def _all_nodes(request: Request, pool: str, event: Callable[[Turn, NodeName], ev.Event]) -> Answer:
    """The same for each node that is there, all of them or none."""
    it = context(request)

    def step(turn: Turn) -> None:
        facts = turn.state.facts
        pools.named([pool], it.config, facts)
        for node in [one.node.name for one in facts.by_pool.get(PoolName(pool), ()) if not one.lost]:
            wanted = event(turn, node)
            if not isinstance(wanted, ev.NodeUncordoned):
                taken_over(turn, node)
            turn.handle(wanted)

    await it.runtime.do(step)
    return await _one(it, pool)


async def _one(it: Context, pool: str) -> Answer:
    found = await it.runtime.read(partial(pools.pools_view, it.config))
    return next(one for one in found if one["name"] == pool)
