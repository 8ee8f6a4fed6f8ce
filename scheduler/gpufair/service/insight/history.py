"""GPU × time: who held which GPU in the last hours, until when he was protected, and when he had to make room.

Nothing in it tells what somebody works on, so that everybody gets the same answer, made once for all who ask within some
seconds. It is made in threads: that of a large lab has thousands of stays.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gpufair.core.record import NodeView
from gpufair.core.units import HOUR, SECOND, Instant, Millis, NodeName
from gpufair.service.insight.lanes import lanes
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.runtime.recovery import SINCE_KEY
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.storage import stays
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.stays import STILL, Stay

FRESH: Final = Millis(5 * SECOND)  # an answer is given again for so long
MOST_KEPT: Final = 32  # answers


@dataclass(frozen=True, slots=True)
class _Made:
    at: Instant
    body: bytes


@dataclass(slots=True)
class History:
    """Answers about the past, each made once for all who ask soon enough after one another."""

    _made: dict[tuple[float, str | None], _Made] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)  # one at a time: commits use the same thread

    async def answer(self, journal: Journal, runtime: Runtime, hub: AgentHub, hours: float, node: str | None) -> bytes:
        """The JSON of the last ``hours``, of one node or of all.

        Raises:
            StoreUnavailable: The journal can't be read.
        """
        async with self._making:
            now, key = runtime.now(), (hours, node)
            made = self._made.get(key)
            if made is None or not 0 <= now - made.at < FRESH:
                made = self._made[key] = _Made(now, await _make(journal, runtime, hub, now, hours, node))
                while len(self._made) > MOST_KEPT:
                    del self._made[min(self._made, key=lambda one: self._made[one].at)]
            return made.body


async def _make(
    journal: Journal, runtime: Runtime, hub: AgentHub, now: Instant, hours: float, node: str | None
) -> bytes:
    known = int(await journal.meta(SINCE_KEY) or 0)
    since = max(now - int(hours * HOUR), known)
    found, since = await journal.within(partial(stays.between, since_ms=since, until_ms=now, node=node))
    nodes = await runtime.read(lambda state: [view for view in state.nodes() if node is None or view.node.name == node])
    ids = {view.node.name: hub.gpu_ids(view.node.name) for view in nodes}

    def write() -> bytes:
        view = {"now_s": now / 1000, "since_s": since / 1000, "nodes": by_node(nodes, ids, found)}
        return json.dumps(view, separators=(",", ":")).encode()

    return await asyncio.to_thread(write)


def by_node(
    nodes: Sequence[NodeView], ids: Mapping[NodeName, tuple[str, ...]], found: Iterable[Stay]
) -> list[dict[str, Any]]:
    """Stays, by grant, on the nodes where they were; ``ids`` are of the GPUs that nodes have."""
    here: defaultdict[NodeName, list[Stay]] = defaultdict(list)
    for stay in found:
        here[NodeName(stay.node)].append(stay)
    shown = {view.node.name: (view.node.pool, view.node.gpu_type, view.node.gpus) for view in nodes if view.node.gpus}
    gone = dict.fromkeys(here.keys() - shown.keys(), ("", "", 0))  # no longer there: as many rows as were used
    return [
        _node(name, pool, kind, gpus, ids.get(name, ()), here[name])
        for name, (pool, kind, gpus) in sorted((shown | gone).items())
    ]


def _node(name: str, pool: str, kind: str, gpus: int, devices: tuple[str, ...], found: list[Stay]) -> dict[str, Any]:
    if not gpus:
        gpus = most_at_once(found)
    rows = lanes(gpus, devices, found)
    return {
        "name": name,
        "pool": pool,
        "gpu_type": kind,
        "gpus": max(gpus, *(row + 1 for each in rows for row in each), 0),
        "devices": list(devices),
        "stays": [_stay(stay, row) for stay, row in zip(found, rows, strict=True)],
    }


def most_at_once(found: list[Stay]) -> int:
    """GPUs that were held at the same time, at most."""
    changes = sorted([(stay.granted_ms, stay.gpus) for stay in found] + [(stay.freed_ms, -stay.gpus) for stay in found])
    most = held = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def _stay(stay: Stay, rows: tuple[int, ...]) -> dict[str, Any]:
    return {
        "workload": stay.workload,
        "user": stay.user,
        "allocation": stay.allocation,
        "rows": list(rows),
        "from_s": stay.granted_ms / 1000,
        "up_s": None if stay.up_ms is None else stay.up_ms / 1000,
        "to_s": None if stay.freed_ms == STILL else stay.freed_ms / 1000,
        "protected": [[begin / 1000, end / 1000] for begin, end in stay.protected],
        "preempted_s": None if stay.preempted_ms is None else stay.preempted_ms / 1000,
        "reason": stay.reason,
    }
