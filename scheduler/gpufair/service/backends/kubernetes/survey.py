"""What a look at the cluster changes for the core: nodes that are there, that are not, and that are closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.core.units import HOUR, Instant, Millis
from gpufair.service.backends.kubernetes.conditions import Condition
from gpufair.service.backends.kubernetes.foreign_wishes import pods_of
from gpufair.service.backends.kubernetes.inventory import Offer
from gpufair.service.backends.kubernetes.made import Place
from gpufair.service.backends.kubernetes.names import RESOURCE
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.virtual_agent import VirtualAgent
from gpufair.wire import NodeInventory

FORGET: Final = HOUR  # after which a node that its cluster has no more is removed: a repair, or a new kubelet, takes less
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Kept:
    """One node of the core, as it was last told of. ``missing_since``: Kubernetes has no such node since then."""

    agent: VirtualAgent
    place: Place
    told: tuple[NodeInventory, bool] | None = None
    missing_since: Instant | None = None
    task: asyncio.Task[None] | None = None  # in which the agent speaks


@dataclass(frozen=True, slots=True)
class InCore:
    """A node as the core has it."""

    cordoned: bool
    lost: bool
    resource: str  # of its GPUs; "": it has none


@dataclass(frozen=True, slots=True)
class Booked:
    """Whose GPUs are in the core's books: starts (workload, incarnation), and the uids of others' pods."""

    starts: frozenset[tuple[str, int]] = frozenset()
    uids: frozenset[str] = frozenset()


def booked(state: State) -> Booked:
    """All that hold something now."""
    records = state.facts.holding.values()
    return Booked(
        frozenset((str(one.id), one.held.incarnation) for one in records if one.held is not None),
        frozenset(uid for one in records if one.held is not None for _, uid in pods_of(one.spec)),
    )


def in_core(pool: str, state: State) -> dict[str, InCore]:
    """The nodes of a pool."""
    return {
        str(one.node.name): InCore(one.cordoned, one.lost, one.node.labels.get(RESOURCE, ""))
        for one in state.nodes()
        if one.node.pool == pool
    }


async def tell(
    site: Site, kept: Mapping[str, Kept], offers: Mapping[str, Offer], trouble: str, odd: Mapping[str, Sequence[str]]
) -> None:
    """Bring the core in line with what the cluster offers.

    Args:
        trouble: What is wrong with the cluster as a whole; "": nothing. It stands at each of its nodes.
        odd: What is wrong with pods, by their node in the cluster.
    """
    known = await site.runtime.read(lambda state: in_core(site.pool, state))
    site.hub.kept.saw(site.pool, offers)
    for name, one in kept.items():
        try:
            reason = await _tell_one(site, name, one, offers.get(name), known.get(name))
        except GpufairError as err:  # the next look says it again
            _log.warning("node %s: %s", name, err)
            continue
        site.hub.told(name, [text for text in (trouble, reason, *odd.get(one.place.host, ())) if text], None)


async def _tell_one(site: Site, name: str, one: Kept, offer: Offer | None, known: InCore | None) -> str:
    now = site.runtime.now()
    if offer is None:
        one.missing_since = one.missing_since or now
        if now - one.missing_since >= site.options.node_silence:
            await _lose(site, name, one, known)
        elif one.told is not None:
            await _present(site, one, one.told[0], closed=True)
        return f"Kubernetes has no node {one.place.host} for this pool any more"
    one.missing_since = None
    if offer.condition is Condition.LOST:
        if known is None:
            await site.hub.away(offer.inventory)
        await _lose(site, name, one, known)
        return offer.standing.reason
    closed = offer.condition is Condition.CLOSED
    opened_by_hand = closed and known is not None and not known.cordoned
    if one.told != (offer.inventory, closed) or not one.agent.there or opened_by_hand:
        one.place = Place(name, offer.host, offer.resource)
        await _present(site, one, offer.inventory, closed=closed)
    return offer.standing.reason


async def _present(site: Site, one: Kept, inventory: NodeInventory, *, closed: bool) -> None:
    if one.told == (inventory, closed) and one.agent.there and not closed:
        return
    await site.hub.present(inventory, closed=closed)
    one.told = (inventory, closed)
    one.agent.back()


async def _lose(site: Site, name: str, one: Kept, known: InCore | None) -> None:
    if not one.agent.there and (known is None or known.lost):
        one.agent.lost()  # pods that were found since
        return
    _log.warning("node %s of pool %s is lost", name, site.pool)
    await site.hub.absent(name)
    one.told = None
    one.agent.lost()


async def remove_past(site: Site, kept: Mapping[str, Kept], hosts: Container[str]) -> list[str]:
    """Remove from the core those nodes whose machine the cluster has no more: an autoscaler makes others, with new names,
    for ever. What ran there has been settled by then.

    Returns: Which those are.
    """
    removed = []
    for name in _past(kept, hosts, site.runtime.now(), max(FORGET, site.options.node_silence)):
        try:
            await site.hub.removed(name)
            site.hub.forget(name)
        except GpufairError as err:  # the next look says it again
            _log.warning("node %s: %s", name, err)
            continue
        _log.info("node %s of pool %s is removed: Kubernetes has had no node %s for long", name, site.pool, kept[name].place.host)
        removed.append(name)
    return removed


def _past(kept: Mapping[str, Kept], hosts: Container[str], now: Instant, after: Millis) -> list[str]:
    return [
        name
        for name, one in kept.items()
        if one.place.host not in hosts and one.told is None and not one.agent.lives
        and one.missing_since is not None and now - one.missing_since >= after
    ]  # fmt: skip


def place_of(pod: Mapping[str, Any], kept: Mapping[str, Kept]) -> str:
    """On which node of the core a bound pod is, by its node and the GPUs that it has; "": on none that is known."""
    spec = pod.get("spec") or {}
    host = spec.get("nodeName")
    asked: set[str] = set()
    for container in spec.get("containers") or []:
        asked |= set(((container.get("resources") or {}).get("limits")) or {})
    there = [name for name, one in sorted(kept.items()) if host and one.place.host == host]
    with_gpus = [name for name in there if kept[name].place.resource in asked]
    return next(iter([*with_gpus, *there]), "")
