"""Anybody's pods: those of other namespaces that ask for our scheduler are workloads, under the same budgets and rules.

What they want is read by ``foreign_wishes``. A workload keeps the uids of its pods in its launch, so that a pod is
submitted once whatever is restarted; what is to be done with each is in its ``ForeignLife``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gpufair.core import events as ev
from gpufair.core.errors import GpufairError, NeverFits, WrongPhase
from gpufair.core.model import HOLDING, Held, Phase
from gpufair.core.state import State
from gpufair.core.units import NodeName, WorkloadId
from gpufair.service.backends.kubernetes.ending import remove
from gpufair.service.backends.kubernetes.foreign_events import TheirPod, Told, tell
from gpufair.service.backends.kubernetes.foreign_life import ForeignLife
from gpufair.service.backends.kubernetes.foreign_taints import Taints
from gpufair.service.backends.kubernetes.foreign_wishes import LAUNCH, Remark, Wish, namespace_of, pods_of, wishes
from gpufair.service.backends.kubernetes.made import Leaving, Made, Place
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.backends.kubernetes.problems import KubernetesProblem
from gpufair.service.backends.kubernetes.requests import FINISHED
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.survey import Kept
from gpufair.service.backends.kubernetes.virtual_agent import VirtualAgent
from gpufair.service.backends.kubernetes.watch import Change, Object
from gpufair.service.workloads.asked import Closed
from gpufair.service.workloads.turn import Turn
from gpufair.wire import Command

# How a workload ends that lost a pod before it started: the others are free for its next set.
_ANEW: Final = "; what is left of it is queued anew"
_SHOWN: Final = 5  # names of nodes, in what is told at a pod
_log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True)
class Theirs:
    """A workload that is pods of others, as the core has it."""

    id: WorkloadId
    phase: Phase
    held: Held | None
    pods: tuple[TheirPod, ...]
    exclude: tuple[NodeName, ...]  # nodes that it is kept off
    why: str = ""  # it was cancelled


class ForeignPods:
    """Of one pool.

    Args:
        found: A pod of the cluster by its uid, as it is now; None: it is not there.
        spawn: Runs something beside all else.
    """

    def __init__(self, site: Site, found: Callable[[str], Object | None], spawn: Spawn) -> None:
        self.lives: Final[dict[tuple[str, PodKey], ForeignLife]] = {}  # by uid and start
        self._site, self._found, self._spawn = site, found, spawn
        self._told: dict[str, str] = {}  # by uid, what was last told there
        self._cleared: set[str] = set()  # uids of pods whose deletion was asked for here
        self._taints, self._tainted = Taints({}), True  # whether there may have been any when this was last looked at

    def concerns(self, command: Command) -> bool:
        """Whether a start is of such pods."""
        return bool((command.args.get("launch") or {}).get("type") == LAUNCH)

    def observe(self, change: Change) -> None:
        """A pod of another namespace has changed."""
        for life in self.lives.values():
            life.observe(change.object, deleted=change.kind == "deleted")

    def begin(self, agent: VirtualAgent, command: Command, rank: int, place: Place) -> ForeignLife:
        """The life of the pod that a start means on this node."""
        launch = command.args["launch"]
        name, uid = (str(part) for part in launch["pods"][rank])
        key = PodKey(WorkloadId(command.workload), command.incarnation, rank)
        return self._live(agent, key, place, TheirPod(str(launch["namespace"]), name, uid))

    async def known(self) -> list[Theirs]:
        """The workloads that are pods of others: once for ``heed``, ``adopt`` and ``look`` of one look at the cluster."""
        return await self._site.runtime.read(lambda state: _known(state, self._site.pool))

    async def heed(self, known: Iterable[Theirs], taints: Taints) -> None:
        """The nodes have these taints: what waits is kept off those that its pods do not tolerate, and off no others.

        Raises:
            StoreUnavailable: It could not be journalled: look again.
        """
        self._taints = taints
        if not taints and not self._tainted:
            return
        for one in known:
            if one.phase is Phase.QUEUED:
                pods = [seen for pod in one.pods if (seen := self._found(pod.uid)) is not None]
                off = taints.kept_off(pods)
                if off != one.exclude:
                    await self._keep_off(one.id, off, pods)
        self._tainted = bool(taints)

    async def _keep_off(self, workload: WorkloadId, off: tuple[NodeName, ...], pods: list[Object]) -> None:
        def step(turn: Turn) -> None:
            record = turn.state.facts.records.get(workload)
            if record is not None and record.phase is Phase.QUEUED:
                spec = record.spec
                shape = replace(spec.shape, exclude=off)
                turn.handle(
                    ev.Amended(
                        turn.now, turn.cause(), workload, spec.allocation, shape, spec.min_runtime, spec.pools, spec.priority
                    )
                )

        try:
            await self._site.runtime.do(step)
        except (NeverFits, WrongPhase) as err:
            # No node is left for it, or others leave for it already: its life here sees to it that it is bound to none.
            _log.info("%s is not kept off %s: %s", workload, ", ".join(off), err)
            if isinstance(err, NeverFits):
                for pod in pods:
                    self._tell(Remark(pod, _tainted(off), wrong=False))

    def adopt(self, known: Iterable[Theirs], kept: Mapping[str, Kept]) -> None:
        """Find again what runs. Before the first hello of a node, which says what is there."""
        for one in known:
            if one.held is not None and one.phase in HOLDING:
                self._adopt(one, one.held, kept)

    async def look(self, known: Collection[Theirs], pods: Mapping[Any, Object]) -> None:
        """Submit what is new, and end what has no pods any more. After the nodes were told of: what is new may start at once.

        Raises:
            StoreUnavailable: Something could not be journalled: look again.
        """
        for one in known:
            if one.phase is Phase.ENDED:
                self._clear_away(one)
            elif not (one.held is not None and one.phase in HOLDING) and (why := self._orphaned(one)):
                await self._give_up(one.id, f"{why}{_ANEW}")
        taken = {pod.uid for one in known if not one.why.endswith(_ANEW) for pod in one.pods}
        found, remarks = wishes(pods.values(), self._site.pool, self._site.options, taken)
        for wish in found:
            async with self._site.pace.turn(wish.spec.user):
                await self._submit(wish)
        for remark in remarks:
            self._tell(remark)
        there = {str(pod["metadata"].get("uid")) for pod in pods.values()}
        self._told = {uid: text for uid, text in self._told.items() if uid in there}
        self._cleared &= there

    # -- inside ---------------------------------------------------------------------------------------------------

    def _adopt(self, one: Theirs, held: Held, kept: Mapping[str, Kept]) -> None:
        for rank, (lease, pod) in enumerate(zip(held.leases, one.pods, strict=False)):
            seen, home = self._found(pod.uid), kept.get(str(lease.node))
            key = PodKey(one.id, held.incarnation, rank)
            if seen is None or home is None or (pod.uid, key) in self.lives or (key.workload, key.incarnation) in home.agent.lives:
                continue
            if (seen.get("spec") or {}).get("nodeName") == home.place.host:
                home.agent.join(self._live(home.agent, key, home.place, pod))

    def _orphaned(self, one: Theirs) -> str:
        """Why a workload that waits can never start; "": it can."""
        for pod in one.pods:
            seen = self._found(pod.uid)
            if seen is None or seen["metadata"].get("deletionTimestamp"):
                return f"its pod {pod.name} was deleted"
            if (seen.get("status") or {}).get("phase") in FINISHED:
                return f"its pod {pod.name} has ended"
            if node := (seen.get("spec") or {}).get("nodeName"):
                return f"its pod {pod.name} has {node} for its node, and a pod has one for its whole life"
        return "" if one.pods else "it names no pods"

    def _clear_away(self, one: Theirs) -> None:
        """What was cancelled while it waited has pods that nobody will start: they go, and are not submitted again."""
        for pod in () if one.why.endswith(_ANEW) else one.pods:
            seen = self._found(pod.uid)
            if seen is None or pod.uid in self._cleared or seen["metadata"].get("deletionTimestamp"):
                continue
            if not (seen.get("spec") or {}).get("nodeName"):
                self._cleared.add(pod.uid)
                self._spawn(self._delete(pod, one.why))

    async def _delete(self, pod: TheirPod, why: str) -> None:
        await tell(self._site, pod, Told.REFUSED, f"deleted by gpufair: {why or 'its workload was cancelled'}")
        try:
            await remove(self._site, pod.name, Made(uid=pod.uid), Leaving(None), pod.path())
        except KubernetesProblem as problem:
            _log.warning("pod %s/%s: %s", pod.namespace, pod.name, problem)
            self._cleared.discard(pod.uid)

    async def _submit(self, wish: Wish) -> None:
        off = self._taints.kept_off(wish.pods)
        spec = replace(wish.spec, shape=replace(wish.spec.shape, exclude=off))

        def step(turn: Turn) -> None:
            if wish.id not in turn.state.facts.records:
                turn.handle(ev.Submitted(turn.now, turn.cause(), wish.id, spec))

        try:
            await self._site.runtime.do(step)
        except GpufairError as err:
            text = f"{err} ({_tainted(off)})" if off and isinstance(err, NeverFits) else str(err)
            for pod in wish.pods:
                self._tell(Remark(pod, text))
            return
        except Exception:  # noqa: BLE001  # whatever is odd about one must not keep the others from being submitted
            _log.exception("the pods of %s cannot be submitted", wish.id)
            for pod in wish.pods:
                self._tell(Remark(pod, "gpufair cannot submit it; an operator finds the reason in the service's log"))
            return
        text = f"queued as {wish.id} under {wish.spec.allocation}; `gpufair why {wish.id}` says what it waits for"
        for pod in wish.pods:
            self._say(pod, Told.QUEUED, text)

    def _tell(self, remark: Remark) -> None:
        self._say(remark.pod, Told.REFUSED if remark.wrong else Told.WAITS, remark.text)

    def _say(self, pod: Mapping[str, Any], reason: Told, text: str) -> None:
        meta = pod["metadata"]
        uid = str(meta.get("uid"))
        if self._told.get(uid) != text:
            self._told[uid] = text
            self._spawn(tell(self._site, TheirPod(str(meta["namespace"]), str(meta["name"]), uid), reason, text))

    async def _cancel(self, key: PodKey, why: str) -> None:
        await self._site.runtime.do(lambda turn: _cancel(turn, key.workload, why))

    async def _give_up(self, workload: WorkloadId, why: str) -> None:
        def step(turn: Turn) -> None:
            # Since it was read it may have been started, and its pod has a node of our own making.
            if workload not in turn.state.facts.holding:
                _cancel(turn, workload, why)

        await self._site.runtime.do(step)

    def _live(self, agent: VirtualAgent, key: PodKey, place: Place, pod: TheirPod) -> ForeignLife:
        life = ForeignLife(self._site, agent, key, place, pod, self._found(pod.uid), self._cancel, self._obstacle)
        self.lives[pod.uid, key] = life
        self._spawn(self._run(life))
        return life

    def _obstacle(self, pod: Object, node: str) -> str:
        return self._taints.obstacle(pod, node)

    async def _run(self, life: ForeignLife) -> None:
        while not life.over:
            try:
                await life.run()
            except Closed:
                return
            except Exception:  # noqa: BLE001  # one pod's trouble must not leave it on its own for ever
                _log.exception("looking after pod %s/%s failed", life.pod.namespace, life.pod.name)
                await asyncio.sleep(1.0)
        self.lives.pop((life.pod.uid, life.key), None)


def _tainted(off: tuple[NodeName, ...]) -> str:
    shown = ", ".join(off[:_SHOWN]) + (f" and {len(off) - _SHOWN} more" if len(off) > _SHOWN else "")
    return f"it does not tolerate the taints of {shown}; no other node could hold it"


def _cancel(turn: Turn, workload: WorkloadId, why: str) -> None:
    record = turn.state.facts.records.get(workload)
    if record is not None and record.phase is not Phase.ENDED and not record.cancelled:
        turn.handle(ev.Cancelled(turn.now, turn.cause(), workload, why))


def _known(state: State, pool: str) -> list[Theirs]:
    found = []
    for record in state.facts.records.values():
        spec = record.spec
        if spec.launch.get("type") == LAUNCH and spec.launch.get("pool") == pool:
            namespace = namespace_of(spec)
            pods = tuple(TheirPod(namespace, name, uid) for name, uid in pods_of(spec))
            found.append(Theirs(record.id, record.phase, record.held, pods, spec.shape.exclude, record.cancelled_why))
    return found
