"""Commands on several nodes: one pod for each, and where they meet is known when the first of them has its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes.names import PodKey, pod_name
from gpufair.service.nodes.dispatch import LOOPBACK
from gpufair.wire import Command

if TYPE_CHECKING:
    from gpufair.service.backends.kubernetes.pod_life import PodLife

LOOK_S: Final = 0.5  # between two looks for the address
ADDRESSES: Final = ("MASTER_ADDR", "PET_MASTER_ADDR")


def met(start: Command, lives: Mapping[str, PodLife]) -> Command | None:
    """The start with the address of the gang's first pod in it; None: that is not known yet.

    An address is known as soon as the pod has one. A name would be known before, but resolvers remember for half a minute
    that there was none.
    """
    env = environment(start)
    if int(env.get("GPUFAIR_NODES", "1")) < 2 or all(env.get(name) != LOOPBACK for name in ADDRESSES):
        return start  # alone, or its owner knows better
    first = lives.get(pod_name(PodKey(WorkloadId(start.workload), start.incarnation)))
    address = None if first is None or first.seen is None else (first.seen.get("status") or {}).get("podIP")
    if not address:
        return None
    env = env | {name: str(address) for name in ADDRESSES if env.get(name) == LOOPBACK}
    launch = {**start.args["launch"], "env": env}
    return replace(start, args={**start.args, "launch": launch})


def environment(start: Command) -> dict[str, Any]:
    """What its process is to find in its environment."""
    return dict((start.args.get("launch") or {}).get("env") or {})


def rank_of(start: Command) -> int:
    """Which of its gang it is."""
    return int(environment(start).get("GPUFAIR_NODE_RANK", "0"))
