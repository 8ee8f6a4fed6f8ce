"""One pod, from the wish for it until it is gone.

Each step looks at what is wanted and at what is there, and does the one thing that is due: so it is the same whether a
call failed, an answer was lost, or a service before this one got half-way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gpufair.core.errors import GpufairError
from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes import explain, gangs, pending, placing
from gpufair.service.backends.kubernetes.ending import ended, last_report, remove
from gpufair.service.backends.kubernetes.made import Leaving, Made, Place, sooner
from gpufair.service.backends.kubernetes.missed import heeded, left_by
from gpufair.service.backends.kubernetes.names import PodKey, pod_name
from gpufair.service.backends.kubernetes.placing import Waits
from gpufair.service.backends.kubernetes.pod_status import begun, ran, terminal
from gpufair.service.backends.kubernetes.problems import KubernetesProblem, Throttled, Unauthorized, Unavailable
from gpufair.service.backends.kubernetes.refusals import MOST
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.trouble import BLIP_S, Trouble
from gpufair.service.backends.kubernetes.verdict import Ending, Verdict
from gpufair.service.backends.kubernetes.watch import Object
from gpufair.service.nodes.reports import TERMINAL
from gpufair.service.settings.durations import format_duration
from gpufair.wire import Command, Report

if TYPE_CHECKING:
    from gpufair.service.backends.kubernetes.virtual_agent import VirtualAgent

FINAL_WORD_S: Final = 1.0  # that reports on their way have to arrive when their pod has ended
LOOK_S: Final = 2.0  # between two looks at a pod that has not begun, for its owner
CONFIDE_S: Final = 10.0  # between two looks for a Secret that somebody deletes
AGAIN_S: Final = 1.0  # until it is asked for once more
STOP_S: Final = 10.0  # from a stop to SIGKILL
_log = logging.getLogger(__name__)


class PodLife:
    """``place``: where it belongs; None for one that nobody wants. ``pod``: as it was found. ``mates``: all lives, by name."""

    def __init__(
        self,
        site: Site,
        agent: VirtualAgent | None,
        key: PodKey,
        place: Place | None,
        pod: Object | None = None,
        mates: Mapping[str, PodLife] | None = None,
    ) -> None:
        self.key: Final = key
        self.name: Final = pod_name(key)
        self.place = place
        self.start: Command | None = None
        self.leaving: Leaving | None = None
        self.verdict: Verdict | None = None  # of the service itself
        self.seen = pod
        self.made = Made.of(pod)
        self.gone = self.over = False
        self._site, self._agent = site, agent
        self._mates: Mapping[str, PodLife] = {} if mates is None else mates
        self._worded = self._asked_in = self._told = False
        self._changed = asyncio.Event()
        self._trouble = Trouble()
        self._remarked = ""
        self._begun_at = self._ended_at = 0.0
        self._confide_at = 0.0  # its Secret anew, not sooner
        self._held_until: float | None = None  # as its node has refused it

    @property
    def workload(self) -> tuple[str, int]:
        """As the protocol of agents names it."""
        return self.key.workload, self.key.incarnation

    # -- what is wanted -------------------------------------------------------------------------------------------

    def begin(self, command: Command) -> None:
        """It is to run this. Twice is once."""
        if self.start is None:
            self.start, self._begun_at = command, time.monotonic()
            if not self.made.bound:
                self._site.pace.begun(self.name)
            self._wake()

    def welcome(self) -> None:
        """Its agent may come in: what it is to do is known."""
        if not self._asked_in and not self.over and self.start is None:
            self._asked_in = True
            self._site.lines.adopt(self.name, WorkloadId(self.key.workload), self.key.incarnation)

    def obey(self, command: Command) -> None:
        """A command for what runs in it."""
        self._site.lines.send(self.name, command)
        if command.kind == "preempt":
            deadline_s = command.args.get("deadline_s")
            until_s = float(deadline_s) if isinstance(deadline_s, int | float) else time.time()
            self._leave(Leaving(until_s + self._site.options.margin / 1000))
        elif command.kind == "stop":
            self._leave(Leaving(time.time() + STOP_S))

    def abandon(self) -> None:
        """Nobody wants it here any more, and another start of the same workload may use its files: it is to end now."""
        self.welcome()
        self.obey(Command(0, "stop", self.key.workload, self.key.incarnation))

    def _leave(self, leaving: Leaving) -> None:
        if self.leaving is None or sooner(leaving, self.leaving):
            self.leaving = leaving
            self._site.pace.dropped(self.name)
            self._wake()

    def _wake(self) -> None:
        self._changed.set()

    # -- what is there --------------------------------------------------------------------------------------------

    def claim(self, agent: VirtualAgent, place: Place) -> None:
        """It belongs there, as it turns out."""
        if self._agent is None and not self._told:
            self._agent, self.place = agent, place

    def observe(self, pod: Object, *, deleted: bool = False) -> None:
        """Kubernetes has this pod now, or has it no more."""
        uid = pod["metadata"].get("uid", "")
        if self.made.uid and uid != self.made.uid:
            return  # of another one that had the name, or has it now
        self.seen = pod
        self.made.see(pod)
        if self.made.bound:
            self._site.pace.bound(self.name)
        self.gone = self.gone or deleted
        self._wake()

    def hint(self) -> None:
        """Something was said about it."""
        self._wake()

    async def heard(self, reports: Sequence[Report]) -> None:
        """Its agent reports. Raises ``GpufairError`` where that could not be kept."""
        if self._agent is None:
            return
        await self._agent.pass_on(self.name, reports)
        if any(report.kind in TERMINAL for report in reports):
            self._worded = True
            self._wake()

    # -- steps ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is gone and told."""
        while not self.over:
            self._changed.clear()
            wait_s: float | None
            try:
                wait_s = await self._step()
            except KubernetesProblem as problem:
                wait_s = await self._troubled(problem)
            except Waits as waits:
                wait_s = await self._hindered(str(waits), waits.pause_s, endless=waits.endless)
            except GpufairError as err:  # the journal, or who keeps the node: for a moment
                _log.info("pod %s: %s", self.name, err)
                wait_s = BLIP_S
            except Exception as err:  # noqa: BLE001  # whatever it is, its owner is to read of it
                _log.exception("looking after pod %s failed", self.name)
                wait_s = await self._hindered(
                    f"the service failed at its pod ({type(err).__name__}: {err}), and tries again; its log says more", BLIP_S
                )
            else:
                self._trouble.over()
            if self.over:
                break
            if wait_s == 0:
                continue  # the next step is due; in a crowd each turn of the loop is long
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
        self._site.lines.forget(self.name)

    async def _step(self) -> float | None:
        """Do what is due now. Returns after how many seconds to look again at the latest; None: when something changes."""
        if self.gone or (self.seen is not None and ended(self.seen, self._site.options.margin / 1000)):
            return await self._end()
        if self.leaving is not None:
            return await self._go(self.leaving)
        if self.start is not None and not self._asked_in:
            self._call_in(self.start)
        try:
            if self.start is not None and not self.made.bound:
                assert self.place is not None
                await self._await_lease()
                await placing.next_step(self._site, self.key, self.place, self.start, self.made)
                if self.made.bound:
                    self._site.pace.bound(self.name)
                return 0.0
            return await self._look_on()
        except placing.Refused as refused:
            return self._give_up(refused.verdict)

    async def _await_lease(self) -> None:
        """Raises ``Waits`` where this service may not write for longer than a moment."""
        lease = self._site.lease
        try:
            async with asyncio.timeout(BLIP_S):
                await lease.wait_held()
        except TimeoutError:
            why = f"nothing is changed in Kubernetes: the Lease {self._site.options.lease!r} is held by {lease.holder or 'nobody'}"
            raise Waits(lease.refused or why, BLIP_S, endless=True) from None

    def _call_in(self, start: Command) -> None:
        """Have its agent told to start; in a gang as soon as it is known where the first of them is."""
        if (told := gangs.met(start, self._mates)) is not None:
            self._asked_in = True
            self._site.lines.expect(self.name, told)

    async def _look_on(self) -> float | None:
        """It is bound: see that it comes up, and tell its owner why it does not."""
        waits_for_mates = self.start is not None and not self._asked_in
        if self.seen is not None and begun(self.seen):
            await self._remark("")  # its agent may have been quicker to say that it runs than we that it did not
        if self.seen is None or begun(self.seen):
            return gangs.LOOK_S if waits_for_mates else None
        site, events = self._site, self._site.events.get(self.made.uid, ())
        now, within = site.runtime.now(), site.options.start_within
        if (verdict := explain.verdict(self.seen, events, now=now, start_within=within)) is not None:
            return self._give_up(verdict)
        await self._remark(pending.waiting(self.seen, events))
        if self.start is not None and pending.lacks_our_secret(self.seen, events) and time.monotonic() >= self._confide_at:
            assert self.place is not None
            self._confide_at, self.made.secret = time.monotonic() + CONFIDE_S, False
            await placing.next_step(site, self.key, self.place, self.start, self.made)
        return LOOK_S

    def _give_up(self, verdict: Verdict) -> float:
        self.verdict = verdict
        self._leave(Leaving(time.time() + STOP_S))
        return 0.0

    async def _go(self, leaving: Leaving) -> float | None:
        if not self.made.uid and not self.made.perhaps:
            self.gone = True
            return 0.0
        if await remove(self._site, self.name, self.made, leaving):
            return self._missed()
        if self.seen is not None:
            return None
        # It may come and go while the watch is broken, which will then never tell of it: ask again until there is none.
        self.made.asked_to_go = None
        return AGAIN_S

    def _missed(self) -> float:
        """Kubernetes says that there is no such pod. Its watch says so, too, if it is true of one that was seen."""
        self.made.asked_to_go = None
        if self.seen is None:
            self.gone = True
            return 0.0
        return AGAIN_S

    async def _end(self) -> float | None:
        """It has ended: say what that was, then take away what is left of it."""
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        left_s = self._ended_at + FINAL_WORD_S - now
        if not self._worded and self._site.lines.heard(self.name) and left_s > 0:
            return left_s
        if (held_s := await self._held_back()) > 0:
            return held_s
        if self._agent is not None:
            if self._agent.there and (left := await left_by(self._site, self.key)):
                await self.heard(left)
                await heeded(self._site, self.key)
            await self._tell_end(self._agent)
            self._agent.lives.pop(self.workload, None)
            self._agent, self._told = None, True
        if self.gone:
            self.over = True
        elif await remove(self._site, self.name, self.made, Leaving(0.0)):
            return self._missed()
        return None

    async def _held_back(self) -> float:
        """For how long yet nobody is told that its node has not taken it: it would be sent there again at once."""
        ordered = self.leaving is not None and self.verdict is None
        if self._agent is None or self.place is None or self._worded or ordered:
            return 0.0
        now, workload = time.monotonic(), str(self.key.workload)
        if self._held_until is None:
            verdict = self.verdict or self._judged()
            self._held_until = now
            unseen = verdict is not None and verdict.ending is Ending.ELSEWHERE and not (self.seen is not None and ran(self.seen))
            if verdict is None or not (unseen or verdict.ending is Ending.NOT_TAKEN):
                self._site.refusals.forget(workload, self.place.node)
                return 0.0
            count, pause_s = self._site.refusals.note(workload, self.place.node)
            self._held_until += pause_s
            self.verdict = verdict if count < MOST else Verdict(Ending.NOT_STARTED, f"{count} times in a row {verdict.text}")
            await self._remark(f"{verdict.text}, in {pause_s:g} s")
        return self._held_until - now

    async def _tell_end(self, agent: VirtualAgent) -> None:
        verdict = self.verdict
        if verdict is None and not self._worded and self.leaving is None:
            verdict = self._judged()
        if verdict is not None and verdict.ending is not Ending.ENDED:
            _log.warning("pod %s: %s", self.name, verdict.text)
        found = last_report(verdict, begun=self.seen is not None and begun(self.seen))
        why = "" if verdict is None or verdict.ending is Ending.ENDED else verdict.text
        if found is None:
            await agent.gone(self.workload, why)
        else:
            kind, body = found
            await agent.report(self.workload, kind, body | ({"why": why} if kind == "released" else {}))

    def _judged(self) -> Verdict | None:
        site = self._site
        if self.gone and (self.seen is None or not terminal(self.seen)):
            return explain.gone(self.seen)
        assert self.seen is not None
        events = site.events.get(self.made.uid, ())
        return explain.verdict(self.seen, events, now=site.runtime.now(), start_within=site.options.start_within)

    # -- trouble --------------------------------------------------------------------------------------------------

    async def _troubled(self, problem: KubernetesProblem) -> float:
        pause_s = self._trouble.met(problem)
        self._site.pace.dropped(self.name)
        if not self._trouble.lasts:
            return pause_s
        _log.warning("pod %s: %s", self.name, problem)
        # While the cluster itself is away nobody could have its GPUs.
        return await self._hindered(str(problem), pause_s, endless=isinstance(problem, Unavailable | Throttled | Unauthorized))

    async def _hindered(self, text: str, pause_s: float, *, endless: bool = False) -> float:
        """Tell its owner what is in the way of a start; give up where GPUs have waited for that for too long."""
        within = self._site.options.start_within
        self._site.pace.dropped(self.name)
        waits = self.start is not None and not self.made.bound and self.leaving is None
        if waits and not endless and time.monotonic() - self._begun_at >= within / 1000:
            return self._give_up(Verdict(Ending.NOT_STARTED, f"its pod could not be made within {format_duration(within)}: {text}"))
        await self._remark(text)
        return pause_s

    async def _remark(self, text: str) -> None:
        if text != self._remarked and self._agent is not None and self._agent.there:
            self._remarked = text
            await self._agent.report(self.workload, "remark", {"text": text})
