"""The end of an embedded service: every session is checkpointed and parked, everything else told to leave."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial

from gpufair.core import events as ev
from gpufair.core.model import HOLDING, Kind, Phase, PreemptReason
from gpufair.core.state import State
from gpufair.core.units import NodeName
from gpufair.service.lifecycle.bootstrap import CORDONED_KEY
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.storage.journal import Journal
from gpufair.service.workloads.turn import Turn

MARGIN_S = 15.0  # beyond the grace: for what has to be killed
POLL_S = 0.05
_log = logging.getLogger(__name__)


async def park_all(runtime: Runtime, journal: Journal, dispatcher: Dispatcher) -> bool:
    """Park every session, have batch workloads checkpointed, and wait until no GPU is held.

    Batch workloads stay queued with their last checkpoint. Takes at most the longest grace plus ``MARGIN_S``.

    Returns: Whether everything was released.
    """
    # Noted first: a service that is killed now must open them again at its next start.
    names = await runtime.read(lambda state: [str(view.node.name) for view in state.nodes() if not view.cordoned])
    noted = json.loads(await journal.meta(CORDONED_KEY) or "[]")
    await journal.set_meta(CORDONED_KEY, json.dumps(sorted({*names, *noted})))
    grace_s = await runtime.do(lambda turn: _begin(turn, dispatcher))
    if await _released(runtime, grace_s + MARGIN_S):
        return True
    await runtime.do(lambda turn: _stop_all(turn, dispatcher))
    return await _released(runtime, MARGIN_S)


async def lose_all_nodes(runtime: Runtime) -> None:
    """While no agent runs there is no capacity: the ledger must not count it as idle."""

    def step(turn: Turn) -> None:
        for view in turn.state.nodes():
            if not view.lost:
                turn.handle(ev.NodeLost(turn.now, turn.cause(), view.node.name))

    await runtime.do(step)


def _begin(turn: Turn, dispatcher: Dispatcher) -> float:
    """Close the nodes and give notice to everybody. Returns the longest grace in seconds."""
    for view in turn.state.nodes():
        if not view.cordoned:
            turn.handle(ev.NodeCordoned(turn.now, turn.cause(), NodeName(view.node.name)))
    longest = 0
    for workload in turn.state.workloads():
        if workload.phase in HOLDING:
            longest = max(longest, turn.state.facts.grace(turn.state.facts.record(workload.id)))
        if workload.phase in (Phase.ENDED, Phase.PARKED, Phase.STOPPING):
            continue
        if workload.spec.kind is Kind.SESSION:
            turn.handle(ev.ParkRequested(turn.now, turn.cause(), workload.id, PreemptReason.SHUTDOWN))
        elif workload.phase in (Phase.STARTING, Phase.RESTORING, Phase.RUNNING):
            # No right of the core's: the service itself takes its machines away, and hears "released" as usual.
            deadline_s = (turn.now + turn.state.facts.grace(turn.state.facts.record(workload.id))) / 1000
            args = {"deadline_s": deadline_s, "text": "the scheduler service is ending; it is queued again"}
            turn.after(partial(dispatcher.tell, workload, "preempt", workload.incarnation, args))
    return longest / 1000


def _stop_all(turn: Turn, dispatcher: Dispatcher) -> None:
    for workload in turn.state.workloads():
        if workload.phase in HOLDING:
            _log.warning("workload %s has not left in time; it is killed", workload.id)
            dispatcher.tell(workload, "stop", workload.incarnation)


async def _released(runtime: Runtime, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while not await runtime.read(_nothing_held):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _nothing_held(state: State) -> bool:
    return not state.facts.holding
