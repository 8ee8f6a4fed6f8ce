"""What keeps the nodes shut that somebody waits for, in the words of whoever keeps them: an agent, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpufair.core.model import Phase
from gpufair.core.placement import accepts
from gpufair.core.state import State
from gpufair.core.units import WorkloadId

_SHOWN: Final = 3


def closed_nodes(state: State, workload: WorkloadId, problems: Callable[[str], Sequence[str]]) -> str:
    """Why nodes of its kind take nothing, where it waits because of that; "" where enough of them are open.

    Args:
        problems: What is wrong with a node, in sentences.
    """
    record = state.facts.records[workload]
    shape = record.spec.shape
    known = [node for pool in record.spec.pools for node in state.facts.by_pool.get(pool, ()) if accepts(shape, node.node)]
    shut = [str(node.node.name) for node in known if not node.open]
    if record.phase is not Phase.QUEUED or len(known) - len(shut) >= shape.nodes:
        return ""
    said = list(dict.fromkeys(text for name in shut for text in problems(name)))
    more = [f"and {len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
    return f"Of these nodes is known: {'; '.join([*said[:_SHOWN], *more])}." if said else ""
