"""One pod of somebody else, from its start here until it has ended: bound, watched, deleted in time when it has to leave.

Nothing of ours runs in it: that it runs is said by its kubelet, a notice is its SIGTERM, and a pod has one node for its
whole life. So a workload of such pods is started once, and when its pods have to leave it is over; whoever made them (a
Job, say) makes others, which are queued as new ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gpufair.core.model import Outcome
from gpufair.core.units import Instant
from gpufair.service.backends.kubernetes import explain, manifests, pending
from gpufair.service.backends.kubernetes.ending import remove
from gpufair.service.backends.kubernetes.foreign_events import TheirPod, Told, tell
from gpufair.service.backends.kubernetes.foreign_wishes import grace_of
from gpufair.service.backends.kubernetes.made import Leaving, Made, Place, sooner
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.backends.kubernetes.pod_status import failure_of
from gpufair.service.backends.kubernetes.problems import Conflict, KubernetesProblem, Missing
from gpufair.service.backends.kubernetes.requests import FINISHED
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.trouble import Trouble
from gpufair.service.backends.kubernetes.verdict import Ending
from gpufair.service.backends.kubernetes.watch import Object
from gpufair.wire import Command

if TYPE_CHECKING:
    from gpufair.service.backends.kubernetes.virtual_agent import VirtualAgent

LOOK_S: Final = 2.0  # between two looks at a pod that has its node and has not begun
_AGAIN: Final = "; it is queued again"
_NEXT: Final = "; if another pod is made in its place, that one is queued by itself"
_log = logging.getLogger(__name__)

Cancel = Callable[[PodKey, str], Awaitable[None]]
Obstacle = Callable[[Object, str], str]


class ForeignLife:
    """``seen``: the pod as it was found, None if it is not there any more. ``cancel`` ends the whole workload in the core.
    ``obstacle`` names a taint of a node of the core that a pod does not tolerate."""

    def __init__(
        self,
        site: Site,
        agent: VirtualAgent,
        key: PodKey,
        place: Place,
        pod: TheirPod,
        seen: Object | None,
        cancel: Cancel,
        obstacle: Obstacle,
    ) -> None:
        self.key: Final = key
        self.pod: Final = pod
        self.place: Final = place
        self.leaving: Leaving | None = None
        self.made = Made(uid=pod.uid)
        self.seen: Object | None = None
        self.gone = self.over = False
        self._site, self._agent, self._cancel, self._obstacle = site, agent, cancel, obstacle
        self._held_back_since: Instant | None = None
        self._why = ""  # what ends its workload, and is not told yet
        self._up = self._refused = False
        self._changed = asyncio.Event()
        self._trouble = Trouble()
        self._remarked = ""
        if seen is None:
            self.gone = True
        else:
            self.observe(seen)

    @property
    def workload(self) -> tuple[str, int]:
        """As the protocol of agents names it."""
        return self.key.workload, self.key.incarnation

    # -- what is wanted -------------------------------------------------------------------------------------------

    def begin(self, command: Command) -> None:
        """It is to get its node. Twice is once."""
        if not (self.made.bound or self.gone):
            self._site.pace.begun(self)
        self._changed.set()

    def welcome(self) -> None:
        """Nobody in it asks."""

    def obey(self, command: Command) -> None:
        """A notice, or an order to end; it knows no others."""
        if command.kind == "preempt":
            deadline_s = command.args.get("deadline_s")
            self._why = self._why or f"{command.args.get('text') or 'it had to give its GPUs back'}{_NEXT}"
            self._leave(Leaving(float(deadline_s) if isinstance(deadline_s, int | float) else time.time()))
        elif command.kind == "stop":
            self._leave(self._in_its_grace())

    def abandon(self) -> None:
        """Nobody expects it here any more."""
        self._leave(self._in_its_grace())

    def _in_its_grace(self) -> Leaving:
        """With the grace that its owner gave it, as far as the core waits for that."""
        return Leaving(time.time() + grace_of(self.seen or {}) / 1000)

    def _leave(self, leaving: Leaving) -> None:
        if self.leaving is None or sooner(leaving, self.leaving):
            self.leaving = leaving
        self._site.pace.dropped(self)
        self._changed.set()

    # -- what is there --------------------------------------------------------------------------------------------

    def observe(self, pod: Object, *, deleted: bool = False) -> None:
        """Kubernetes has this pod now, or has it no more."""
        if pod["metadata"].get("uid") != self.pod.uid:
            return
        self.seen = pod
        self.made.see(pod)
        self.gone = self.gone or deleted
        self._changed.set()

    @property
    def _phase(self) -> str:
        return str(((self.seen or {}).get("status") or {}).get("phase") or "")

    # -- steps ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it has ended and that is told."""
        while not self.over:
            self._changed.clear()
            try:
                wait_s = await self._step()
            except KubernetesProblem as problem:
                wait_s = await self._troubled(problem)
            else:
                self._trouble.over()
            if self.over:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self) -> float | None:
        """Do what is due now. Returns after how many seconds to look again at the latest; None: when something changes."""
        if self.gone or self._phase in FINISHED or self._elsewhere():
            return await self._end()
        if self.leaving is not None:
            return await self._go(self.leaving)
        if not self.made.bound:
            return await self._bind()
        if self._phase == "Running":
            if not self._up:
                self._up = await self._agent.report(self.workload, "serving", {"generation": 1, "connection": {}, "devices": []})
            return None
        return await self._look_on()

    async def _bind(self) -> float | None:
        if taint := self._obstacle(self.seen or {}, self.place.node):
            return await self._hold_back(taint)
        self._held_back_since = None
        body = manifests.binding(self.pod.name, self.pod.namespace, self.pod.uid, self.place.host)
        try:
            await self._site.write("POST", self.pod.path("binding"), body)
        except Missing:
            self.gone = True
            return 0.0
        except Conflict as conflict:
            if not await self._bound_before(conflict):
                return 0.0
        self.made.bound = True
        self._site.pace.bound(self)
        await tell(self._site, self.pod, Told.SCHEDULED, f"bound to {self.place.host} by gpufair, as {self.key.workload}")
        return 0.0

    async def _hold_back(self, taint: str) -> float:
        """Its node was tainted when it was chosen already: wait for that to pass, as for an image, and not for ever."""
        now, site = self._site.runtime.now(), self._site
        self._held_back_since = self._held_back_since or now
        text = f"its node {self.place.host} has the taint {taint} by now, which it does not tolerate"
        if now - self._held_back_since < site.options.start_within:
            await self._remark(f"{text}; it is bound when that is taken off")
            return LOOK_S
        self._why = f"{text}{_NEXT}"
        await tell(site, self.pod, Told.REFUSED, f"deleted by gpufair: {self._why}")
        self._leave(self._in_its_grace())
        return 0.0

    async def _bound_before(self, conflict: Conflict) -> bool:
        """Whether it has its node already, by a call whose answer was lost. Raises ``conflict`` where time will tell."""
        try:
            pod = await self._site.read(self.pod.path())
        except Missing:
            self.gone = True
            return False
        if pod["metadata"].get("uid") != self.pod.uid:
            self.gone = True
            return False
        self.observe(pod)
        if not self.made.bound:
            raise conflict
        return not self._elsewhere()

    def _elsewhere(self) -> bool:
        """Whether it has another node, from an earlier start or by somebody else: it will never be here."""
        node = ((self.seen or {}).get("spec") or {}).get("nodeName")
        if not node or node == self.place.host:
            return False
        self._why = f"its pod {self.pod.name} has {node} for its node, and a pod has one for its whole life{_NEXT}"
        self._refused = True
        return True

    async def _look_on(self) -> float:
        """It has its GPUs and has not begun: that must not be for ever."""
        assert self.seen is not None
        site = self._site
        found = explain.verdict(self.seen, now=site.runtime.now(), start_within=site.options.start_within)
        if found is not None and found.ending is not Ending.ENDED:
            self._why = f"{found.text.removesuffix(_AGAIN)}{_NEXT}"
            await tell(site, self.pod, Told.REFUSED, f"deleted by gpufair: {self._why}")
            self._leave(self._in_its_grace())
            return 0.0
        await self._remark(pending.waiting(self.seen))
        return LOOK_S

    async def _go(self, leaving: Leaving) -> float | None:
        if self._why:
            # Before it is gone: else its workload would be queued again, for pods that are no more.
            await self._cancel(self.key, self._why)
            await tell(self._site, self.pod, Told.PREEMPTED, self._why)
            self._why = ""
        if await remove(self._site, self.pod.name, self.made, leaving, self.pod.path()):
            self.gone = True
            return 0.0
        return None

    async def _end(self) -> float | None:
        self._site.pace.dropped(self)
        kind, body = self._last_word()
        if kind == "released":
            if self._why or self.leaving is None:  # else the core itself wanted it to end, and knows why
                await self._cancel(self.key, self._why or f"its pod {self.pod.name} was deleted{_NEXT}")
            await self._agent.gone(self.workload)
        else:
            await self._agent.report(self.workload, kind, body)
        self._agent.lives.pop(self.workload, None)
        self.over = True
        return None

    def _last_word(self) -> tuple[str, dict[str, Any]]:
        if self._phase == "Succeeded":
            return "exited", {"outcome": Outcome.COMPLETED.value, "code": 0, "reason": ""}
        if self._phase != "Failed" or self._refused or self.leaving is not None or self.seen is None:
            return "released", {}
        code, text = failure_of(self.seen)
        if not text:
            judged = explain.verdict(self.seen, now=self._site.runtime.now(), start_within=self._site.options.start_within)
            text = judged.text.removesuffix(_AGAIN) if judged is not None else "its pod failed"
        return "exited", {"outcome": Outcome.FAILED.value, "code": code, "reason": text}

    # -- trouble --------------------------------------------------------------------------------------------------

    async def _troubled(self, problem: KubernetesProblem) -> float:
        pause_s = self._trouble.met(problem)
        self._site.pace.dropped(self)
        if self._trouble.lasts:
            _log.warning("pod %s/%s: %s", self.pod.namespace, self.pod.name, problem)
            await self._remark(str(problem))
        return pause_s

    async def _remark(self, text: str) -> None:
        if text != self._remarked and self._agent.there:
            self._remarked = text
            await self._agent.report(self.workload, "remark", {"text": text})
