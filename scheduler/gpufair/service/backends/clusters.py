"""Several clusters under one service: which backend carries out what is decided for which pool.

Each pool has one backend, and so each node. The core decides for all of them; a decision reaches the backend of the pool in
which the workload has its place. What has no place any more (it ended, was parked, is queued again) is told to all: it
changes nothing on a node, but a backend may have waited for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from gpufair.core.actions import Action, Start
from gpufair.core.state import State
from gpufair.core.units import PoolName
from gpufair.service.runtime.backend import Backend

_log = logging.getLogger(__name__)


class Clusters:
    """The runtime's backend where pools have backends of their own.

    Args:
        usual: That of every pool which has none of its own.
        own: Those of the others.
    """

    def __init__(self, usual: Backend, own: Mapping[PoolName, Backend] | None = None) -> None:
        self._usual, self._own = usual, dict(own or {})
        self._all = list({id(one): one for one in (usual, *self._own.values())}.values())

    def of(self, pool: PoolName) -> Backend:
        """Who carries out what is decided for a pool."""
        return self._own.get(pool, self._usual)

    def perform(self, actions: Sequence[Action], state: State) -> None:
        """Tell each backend what is its own, in order (``Backend.perform``)."""
        for backend in self._all:
            if part := [one for one in actions if self._whose(one, state) in (backend, None)]:
                try:
                    backend.perform(part, state)
                except Exception:  # noqa: BLE001
                    # One cluster that breaks must not keep the others from what was decided for them.
                    _log.exception("a backend failed to carry out what was decided")

    def _whose(self, action: Action, state: State) -> Backend | None:
        held = action.held if isinstance(action, Start) else state.facts.record(action.workload).held
        return None if held is None else self.of(held.pool)
