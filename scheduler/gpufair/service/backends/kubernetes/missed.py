"""Pods that came to their end, and were removed, while no service was there to see it: what they have left is read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from gpufair.core.model import HOLDING
from gpufair.core.state import State
from gpufair.service.backends.kubernetes.names import PodKey, pod_name
from gpufair.service.nodes.dispatch import hosts
from gpufair.service.nodes.left_behind import left_behind, taken
from gpufair.wire import Report

if TYPE_CHECKING:
    from gpufair.service.backends.kubernetes.site import Site


async def missed(site: Site, node: str, known: Collection[tuple[str, int]]) -> list[tuple[PodKey, list[Report]]]:
    """The last words of what is still held on a node of the core, and has no pod there any more.

    Args:
        known: Of which there is a pod, as workload and incarnation.
    """
    found = []
    for key in await site.runtime.read(lambda state: _held(state, node)):
        if (key.workload, key.incarnation) in known:
            continue
        if left := await left_by(site, key):
            found.append((key, left))
    return found


async def left_by(site: Site, key: PodKey) -> list[Report]:
    """What the agent in a pod could tell no service before it had to end."""
    folder = site.dispatcher.record_dir(key.workload)
    return await asyncio.to_thread(left_behind, folder, pod_name(key), key.workload, key.incarnation)


async def heeded(site: Site, key: PodKey) -> None:
    """Its last words are durable."""
    await asyncio.to_thread(taken, site.dispatcher.record_dir(key.workload), pod_name(key))


def _held(state: State, node: str) -> list[PodKey]:
    found = []
    for name in sorted(state.facts.holding):
        workload = state.workload(name)
        if workload.phase in HOLDING and workload.held is not None and node in hosts(workload):
            ranks = [rank for rank, lease in enumerate(workload.held.leases) if lease.node == node]
            found += [PodKey(workload.id, workload.incarnation, rank) for rank in ranks]
    return found
