"""What subscribers are told: Workload objects as they became, and what everybody is to see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from gpufair.core.model import Phase
from gpufair.core.state import State
from gpufair.core.units import Instant, Millis, WorkloadId
from gpufair.service.runtime.broadcast import Broadcast
from gpufair.service.storage.announcements import Board
from gpufair.service.workloads import standin
from gpufair.service.workloads.details import Detail
from gpufair.service.workloads.suggesting import suggestion
from gpufair.service.workloads.turn import EMPTY
from gpufair.service.workloads.views import maintenance_view, workload_view

FEW = 64  # places in the queue that are looked up one by one

Details = Mapping[WorkloadId, Detail]
Places = dict[WorkloadId, int]


class Teller:
    """Knows what subscribers were told last, so that they hear of what is new and of nothing else.

    What is committed is handed in each time. ``begin`` before the first ``publish``.

    Args:
        suggest_cpu_after: See ``suggesting``; 0: never.
    """

    def __init__(self, broadcast: Broadcast, suggest_cpu_after: Millis) -> None:
        self._broadcast, self._suggest_cpu_after = broadcast, suggest_cpu_after
        self._shown: dict[WorkloadId, dict[str, Any]] = {}
        self._noticed: dict[str, Any] = {}
        self.noticed_at = Instant(0)  # when it was last looked what everybody is to see

    def begin(self, state: State, details: Details, board: Board, now: Instant) -> None:
        """Take what is there as known to everybody."""
        # Of what has ended nothing new comes, and after years that is nearly all.
        live = [one.id for one in state.facts.records.values() if one.phase is not Phase.ENDED]
        self._shown = {one: self.view(state, details, one, now) for one in live}
        self.noticed_at, self._noticed = now, notices(board, state, now)

    def view(
        self, state: State, details: Details, workload: WorkloadId, now: Instant, places: Places | None = None
    ) -> dict[str, Any]:
        """The Workload object of one workload.

        Args:
            places: Of the queue, where they are known.
        """
        place = None
        if state.facts.record(workload).phase is Phase.QUEUED:
            place = (places or {}).get(workload) or state.position(workload)
        detail = details.get(workload, EMPTY)
        view = workload_view(state, workload, detail, place, now)
        view["suggestion"] = suggestion(state, workload, detail, now, self._suggest_cpu_after)
        return standin.shown(view, state, detail, details)

    def publish(
        self,
        state: State,
        details: Details,
        workloads: set[WorkloadId],
        now: Instant,
        fresh: Mapping[WorkloadId, dict[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Tell subscribers about these workloads, as far as something changed for them.

        Args:
            fresh: Workload objects as of now, as far as they are at hand.
        """
        known = state.facts.records
        # Nobody hears of a stand-in: what is new about it is told of its session.
        workloads = {standin.session_of(known[one].spec) or one for one in workloads & known.keys()}
        wanted: list[WorkloadId] = []
        for workload in sorted(workloads & known.keys()):
            user = known[workload].spec.user
            if self._broadcast.wants(user):
                wanted.append(workload)
            else:
                self._broadcast.unheard(user)
        places = places_for(state, len(wanted))
        changed: list[dict[str, Any]] = []
        for workload in wanted:
            view = fresh.get(workload) or self.view(state, details, workload, now, places)
            if _steady(view) != _steady(self._shown.get(workload, {})):
                self._shown[workload] = view
                changed.append(view)
        self._broadcast.publish(changed)

    def forget(self, workloads: Iterable[WorkloadId]) -> None:
        """Nothing is told of these any more."""
        for workload in workloads:
            self._shown.pop(workload, None)

    def announce(self, board: Board, state: State, now: Instant) -> None:
        """Tell subscribers what everybody is to see, if that has changed."""
        self.noticed_at = now
        if (current := notices(board, state, now)) != self._noticed:
            self._noticed = current
            self._broadcast.announce(current)


def notices(board: Board, state: State, now: Instant) -> dict[str, Any]:
    """What everybody is to see: announcements, and the maintenance that is planned."""
    current = [one.view(now) for one in board.current(now)]
    return {"announcements": current, "maintenance": maintenance_view(state)}


def places_for(state: State, asked: int) -> Places | None:
    """The places of all; None where listing a long queue for so few would take longer than looking each up."""
    return {workload: place for place, workload in enumerate(state.queue(), 1)} if asked > FEW else None


def _steady(view: dict[str, Any]) -> dict[str, Any]:
    """A view without what changes with time alone."""
    return {key: value for key, value in view.items() if key not in {"charged_gpu_s", "utilization"}}
