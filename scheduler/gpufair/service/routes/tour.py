"""A tour of the last week."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request

from gpufair.client.insight import Tour
from gpufair.core.model import WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import Instant, WorkloadId
from gpufair.service.insight.tour import SPAN, Record, tour_view
from gpufair.service.insight.week import Week
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import PlainName

router = APIRouter()
MOST_ENTRIES: Final = 200_000  # the newest of the week: reading them takes seconds
PAGE: Final = 5_000


@router.get("/tour", responses=answers(Tour))
async def tour(request: Request, user: Annotated[PlainName | None, Query()] = None) -> dict[str, Any]:
    """Why a handful of workloads of the last week waited, ran and were preempted, from the record; one's own first."""
    it, name = context(request), principal(request).acting_for(user)
    async with request.app.state.touring:  # one at a time: each takes a processor
        now = it.runtime.now()
        last, start = it.journal.seq, Instant(max(0, now - SPAN))
        first = await it.journal.before(start)
        after = max(first, last - MOST_ENTRIES)
        week, seen = Week(), after
        since = now if first == 0 else start
        while seen < last:
            entries = await it.journal.entries(seen, min(PAGE, last - seen))
            if not entries:
                break
            if seen == after and (after > first or first == 0):
                since = Instant(entries[0].at_ms)
            await asyncio.to_thread(week.take, entries)
            seen = entries[-1].seq

        def look(state: State) -> dict[WorkloadId, WorkloadSpec]:
            records = state.facts.records
            return {one: records[one].spec for one in strangers if one in records}

        strangers = week.strangers()
        for workload, spec in (await it.runtime.read(look, strangers)).items():
            week.story(workload).spec = spec
        return await asyncio.to_thread(tour_view, week, Record(since, now, cut=after > first), name)
