"""The service itself: status, queue, budgets, nodes, profiles, ledger, timeline."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request

from gpufair.client.answers import Conservation, Nodes, Profiles, QueuedWorkloads, Timeline
from gpufair.client.machines import NodeView
from gpufair.client.reasons import AllocationExplanation
from gpufair.client.types import Budgets as BudgetTree
from gpufair.client.types import Status
from gpufair.core import events as ev
from gpufair.core.model import Phase
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, NodeName, after
from gpufair.service.budgets import budget_changes
from gpufair.service.insight.explained import allocation_view
from gpufair.service.nodes.kept import taken_over
from gpufair.service.problems import BadRequest, Conflict, NotFound
from gpufair.service.settings.budgets import MAX_BUDGETS_BYTES, Budgets, budgets_from_json, parse_budgets
from gpufair.service.settings.tables import hint
from gpufair.service.storage.timeline import records, without_names
from gpufair.service.web.acting import Fields, listed
from gpufair.service.web.context import Context, context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import NAME_PATTERN, Drain
from gpufair.service.web.pages import Cursor, Limit, cut, place
from gpufair.service.workloads import views
from gpufair.service.workloads.submission import span_of
from gpufair.service.workloads.turn import Turn
from gpufair.wire import API_VERSION

router = APIRouter()
Answer = dict[str, Any]
Node = Annotated[str, Path(pattern=NAME_PATTERN)]
_BUDGETS_BODY = {
    "required": True,
    "content": {
        "application/toml": {"schema": {"type": "string", "description": "A budgets file."}},
        "application/json": {"schema": {"type": "object", "description": "The same as JSON."}},
    },
}
MAX_TIMELINE = 100_000  # entries in one answer


@router.get("/status", responses=answers(Status))
async def status(request: Request) -> Answer:
    """The service about itself."""
    it, who = context(request), principal(request)

    def look(state: State) -> tuple[dict[str, int], int, int, int]:
        there = [view for view in state.nodes() if not view.lost]
        counts = Counter(record.phase.value for record in state.facts.records.values())
        if it.runtime.past_count:
            counts[Phase.ENDED.value] += it.runtime.past_count
        return dict(counts), len(there), sum(view.node.gpus for view in there), sum(view.free for view in there)

    counts, nodes, total, free = await it.runtime.read(look)
    until = it.lifetime.until if it.embedded else None
    return {
        "version": it.version,
        "api_version": API_VERSION,
        "pid": os.getpid(),
        "started_s": it.started_at / 1000,
        "now_s": it.runtime.now() / 1000,
        "mode": "embedded" if it.embedded else "shared",
        "state_dir": str(it.state_dir) if who.sees_all else "",
        "user": who.name,
        "operator": who.operates,
        "nodes": nodes,
        "gpus": {"total": total, "free": free},
        "counts": counts,
        "holders": it.lifetime.holders,
        "linger_s": views.seconds(it.lifetime.linger) if it.embedded else None,
        "linger_until_s": views.seconds(until),
    }


@router.get("/queue", responses=answers(QueuedWorkloads))
async def queue(request: Request, fields: Fields = None, limit: Limit = None, cursor: Cursor = None) -> Answer:
    """The queued workloads in the order in which they will be served. A page begins behind the last place of the one before."""
    it, who = context(request), principal(request)
    begun = place(cursor, (int,))
    found = await it.runtime.views(lambda record: record.phase == "queued")
    found.sort(key=lambda view: view["position"] or len(found) + 1)
    left = found if begun is None else [view for view in found if [view["position"] or 0] > begun]
    told, following = cut(left, lambda view: [view["position"] or 0], limit)
    return {"now_s": it.runtime.now() / 1000, "workloads": listed(told, who, fields), "next": following}


@router.get("/budgets", responses=answers(BudgetTree))
async def budgets(request: Request) -> Answer:
    """The budget tree with what is charged."""
    return await context(request).runtime.think(views.budgets_view)


@router.get("/budgets/why", responses=answers(AllocationExplanation))
async def budgets_why(request: Request, allocation: Annotated[str, Query(max_length=512)]) -> Answer:
    """How an allocation stands among its siblings, with the parts of each metric."""
    path = AllocationPath(allocation)

    def look(state: State) -> Answer:
        if path not in state.tree:
            known = [node.path for node in state.tree.nodes() if node.path]
            raise NotFound(f"there is no allocation {allocation[:80]!r}{hint(allocation, known)}")
        return allocation_view(state.explain_allocation(path), path)

    return await context(request).runtime.think(look)


@router.put("/budgets", responses=answers(BudgetTree), openapi_extra={"requestBody": _BUDGETS_BODY})
async def apply_budgets(request: Request, why: Annotated[str, Query(max_length=1000)] = "") -> Answer:
    """Replace the whole budget tree. The body is a budgets file (TOML), or the same as JSON; ``why`` is for the history."""
    it, who = context(request), principal(request)
    data = await request.body()
    is_json = request.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    wanted: Budgets
    if is_json:
        try:
            wanted = budgets_from_json(await request.json(), it.config.users)
        except (ValueError, RecursionError) as err:
            raise BadRequest(f"the body is not JSON: {err}") from err
    else:
        # In a thread: a file of the largest size allowed takes a second to check.
        wanted = await asyncio.to_thread(parse_budgets, data[: MAX_BUDGETS_BYTES + 1], it.config.users)

    await it.runtime.do(partial(budget_changes.change, allocations=wanted.allocations, by=who.name, why=why))
    return await it.runtime.think(views.budgets_view)


@router.get("/nodes", responses=answers(Nodes))
async def nodes(request: Request, limit: Limit = None, cursor: Cursor = None) -> Answer:
    """The machines, by name."""
    it, begun = context(request), place(cursor, (str,))
    found = await it.runtime.read(lambda state: views.nodes_view(state, it.hub.last_seen, it.hub.health))
    left = found if begun is None else [view for view in found if [view["name"]] > begun]
    told, following = cut(left, lambda view: [view["name"]], limit)
    return {"nodes": told, "next": following}


@router.post("/nodes/{node}/cordon", responses=answers(NodeView))
async def cordon(request: Request, node: Node) -> Answer:
    """Let nothing new start there; what runs leaves as its protection ends."""
    return await _cordon(request, node, on=True)


@router.post("/nodes/{node}/uncordon", responses=answers(NodeView))
async def uncordon(request: Request, node: Node) -> Answer:
    """Let the node take workloads again."""
    return await _cordon(request, node, on=False)


@router.post("/nodes/{node}/drain", responses=answers(NodeView))
async def drain(request: Request, node: Node, body: Annotated[Drain | None, Body()] = None) -> Answer:
    """A cordon that says by when the node has to be empty; ``force`` cuts protections that last longer."""
    it, wanted = context(request), body or Drain()
    within = None if wanted.within_s is None else span_of(wanted.within_s, "within_s")

    def step(turn: Turn) -> None:
        deadline = None if within is None else after(turn.now, within)
        taken_over(turn, NodeName(node))
        turn.handle(ev.NodeDrained(turn.now, turn.cause(), NodeName(node), deadline, wanted.force))

    await it.runtime.do(step)
    return await _node(it, node)


@router.delete("/nodes/{node}", responses=answers(NodeView))
async def remove(request: Request, node: Node) -> Answer:
    """Take a lost node off the list for good; answers what it was. One of its name that comes later is a new one."""
    it = context(request)
    found = await _node(it, node)
    if found["state"] == "lost" and it.hub.kept.has(node):
        raise Conflict(
            f"node {node!r} cannot be removed: it does not answer, but Kubernetes has it yet; delete it there "
            f"(`kubectl delete node`), and it goes from here, too"
        )
    await it.hub.removed(node)
    return found


async def _cordon(request: Request, node: str, *, on: bool) -> Answer:
    it = context(request)
    kind = ev.NodeCordoned if on else ev.NodeUncordoned

    def step(turn: Turn) -> None:
        if on:
            taken_over(turn, NodeName(node))
        turn.handle(kind(turn.now, turn.cause(), NodeName(node)))

    await it.runtime.do(step)
    return await _node(it, node)


async def _node(it: Context, node: str) -> Answer:
    found = await it.runtime.read(lambda state: views.nodes_view(state, it.hub.last_seen, it.hub.health))
    try:
        return next(view for view in found if view["name"] == node)
    except StopIteration:
        raise NotFound(f"there is no node {node!r}") from None


@router.get("/profiles", responses=answers(Profiles))
async def profiles(request: Request) -> Answer:
    """The named shapes that users start."""
    config = context(request).config
    return {"profiles": [views.profile_view(profile, config.policy) for profile in config.profiles]}


@router.get("/conservation", responses=answers(Conservation))
async def conservation(request: Request) -> Answer:
    """Where every GPU-millisecond went."""

    def look(state: State) -> Answer:
        return views.conservation_view(state.conservation()) | {"protected_preemptions": state.protected_preemptions}

    return await context(request).runtime.read(look)


@router.get("/timeline", responses=answers(Timeline))
async def timeline(
    request: Request,
    after: Annotated[int, Query(ge=0)] = 0,
    since_s: Annotated[float, Query(ge=0, le=1e11, allow_inf_nan=False)] = 0.0,
    kinds: Annotated[str, Query(max_length=2000)] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_TIMELINE)] = MAX_TIMELINE,
) -> Answer:
    """What happened and what was decided, oldest first, from the journal.

    ``after`` is an entry's ``seq``; ``since_s`` leaves out what is older, ``kinds`` other classes than those named;
    ``limit`` is of entries looked at, of which ``last`` is the last one, and there are ``more`` behind it or not. What
    was before ``archived_until_s`` was moved to an archive file.
    """
    it, who = context(request), principal(request)
    if since_s:
        after = max(after, await it.journal.before(int(since_s * 1000)))
    entries = await it.journal.entries(after, limit)
    wanted = frozenset(kinds.split(",")) if kinds else None

    def select() -> list[Answer]:
        found = [record for record in records(entries) if wanted is None or record["kind"] in wanted]
        return found if who.sees_all else [without_names(record) for record in found]

    last = entries[-1].seq if entries else after
    first = await it.journal.first()
    archived = first[1] / 1000 if first is not None and first[0] > 1 else None
    return {
        "records": await asyncio.to_thread(select),
        "last": last,
        "more": last < it.journal.seq,
        "archived_until_s": archived,
    }
