"""A Kubernetes cluster behind a pool: it is watched, its nodes are told to the core, and each node has its virtual agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Self

from gpufair.core.errors import GpufairError
from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes import inventory, names, survey
from gpufair.service.backends.kubernetes.api import Api, Limits
from gpufair.service.backends.kubernetes.foreign import ForeignPods
from gpufair.service.backends.kubernetes.foreign_taints import Taints
from gpufair.service.backends.kubernetes.gangs import rank_of
from gpufair.service.backends.kubernetes.lease import Lease
from gpufair.service.backends.kubernetes.life import Life
from gpufair.service.backends.kubernetes.made import Place
from gpufair.service.backends.kubernetes.marks import Marks
from gpufair.service.backends.kubernetes.missed import heeded, missed
from gpufair.service.backends.kubernetes.names import PodKey, pod_name
from gpufair.service.backends.kubernetes.pod_life import PodLife
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.strangers import NOBODYS, Strangers, home_of, said_of
from gpufair.service.backends.kubernetes.survey import Booked, Kept
from gpufair.service.backends.kubernetes.virtual_agent import VirtualAgent
from gpufair.service.backends.kubernetes.watch import Change, Object, Reflector
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import PodTemplate
from gpufair.wire import Command, Report

LOOK_S: Final = 2.0  # between two looks at the cluster, whatever has changed
REST_S: Final = 0.1  # at the least
LEASE_LOOK_S: Final = 0.5
MEETING_S: Final = 10.0  # that all nodes have to say hello after a start
STALE_S: Final = 5.0  # a watch that is broken for so long is worth a word
_log = logging.getLogger(__name__)


class KubernetesCluster:
    """Use ``open``, then ``start``; ``close`` leaves all pods as they are."""

    def __init__(self, site: Site, deposed: Callable[[], None] = lambda: None) -> None:
        self._deposed = deposed
        self.site: Final = site
        self.lives: Final[dict[str, PodLife]] = {}
        self.kept: Final[dict[str, Kept]] = {}  # by the core's name of a node
        self._tasks: set[asyncio.Task[None]] = set()
        self._dirty = asyncio.Event()
        self._remembered = inventory.Remembered()
        self._strangers = Strangers("" if site.options.take_over else site.secrets.public_name())
        self._booked = Booked()
        self._meeting: float | None = 0.0  # since when it is waited for nodes to say hello; None: no more
        self._nodes = Reflector(site.api, "/api/v1/nodes", changed=lambda _: self._dirty.set())
        self._pods = Reflector(site.api, "/api/v1/pods", changed=self._pod_changed)
        self.foreign: Final = ForeignPods(site, self._pods.by_uid, self._spawn)
        self._events = Reflector(
            site.api, site.path("events"), fields="involvedObject.kind=Pod", changed=self._event_told
        )

    @classmethod
    async def open(
        cls,
        pool: str,
        options: KubernetesOptions,
        *,
        runtime: Runtime,
        hub: AgentHub,
        dispatcher: Dispatcher,
        lines: PodLines,
        key: Secrets,
        template_of: Callable[[str], PodTemplate],
        deposed: Callable[[], None],
        identity: str,
        marks: Marks,
    ) -> Self:
        """Read how the cluster is reached. It is not asked yet.

        Args:
            identity: Of this service: all of its pools have it, since they may share a Lease.
            deposed: Called when another service has taken the Lease that this one held.
            marks: Of the journal that says which pods are ours to end.

        Raises:
            NoApiServer: The settings lead nowhere.
        """
        limits = Limits(per_s=float(options.requests_per_s), burst=options.burst)
        api = await Api.open(options.kubeconfig, options.context, limits=limits)
        duration_s = options.lease_for / 1000
        lease = Lease(
            api, options.namespace, options.lease, identity, duration_s=duration_s,
            renew_deadline_s=duration_s * 2 / 3, retry_s=duration_s / 7.5, marks=marks,
        )  # fmt: skip
        return cls(Site(pool, options, api, lease, lines, hub, dispatcher, runtime, key, template_of), deposed)

    def start(self) -> None:
        """Begin to watch, and to carry out."""
        for reflector in (self._nodes, self._pods, self._events):
            self._spawn(reflector.run())
        self._spawn(self.site.lease.hold())
        self._spawn(self._step_down())
        self._spawn(self._look_after())

    async def close(self) -> None:
        """Stop; what runs in the cluster goes on, and the next service finds it."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.site.api.close()

    # -- towards pods ---------------------------------------------------------------------------------------------

    async def heard(self, pod: str, reports: Sequence[Report]) -> None:
        """The agent in a pod reports. Raises ``GpufairError`` where that could not be kept."""
        await self.lives[pod].heard(reports)

    # -- watching -------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        meta = pod["metadata"]
        name, deleted = str(meta["name"]), change.kind == "deleted"
        here = meta.get("namespace") == self.site.options.namespace
        ours = here and names.is_ours(pod, self.site.pool)
        life = self.lives.get(name) if here else None
        # Whoever takes our labels off a pod changes nothing of what it is.
        if life is not None and (ours or life.made.uid == meta.get("uid")):
            self._life_changed(life, change)
        elif deleted or not ours:
            if here:
                self._strangers.forget(name)
            if here and not deleted and names.was_ours(pod, self.site.pool):
                self._strangers.judge(pod, NOBODYS)
            self.foreign.observe(change)
            self._dirty.set()
        else:
            self._strangers.found(pod)
            self._dirty.set()

    def _life_changed(self, life: PodLife, change: Change) -> None:
        pod, deleted = change.object, change.kind == "deleted"
        life.observe(pod, deleted=deleted)
        if deleted:
            self._strangers.forget(life.name)
            if life.workload not in self._booked.starts:
                self._dirty.set()  # nobody else says that its GPUs are free
        else:
            self._strangers.judge(pod, "put that back: a service that is started again will not know it")
        if change.before is not None and _address(pod) != _address(change.before):
            for mate in self.lives.values():
                if mate.key.workload == life.key.workload:
                    mate.hint()

    def _event_told(self, change: Change) -> None:
        life = self.lives.get(str((change.object.get("involvedObject") or {}).get("name", "")))
        if life is not None and change.kind != "deleted" and self.site.heed(change.object):
            life.hint()

    async def _step_down(self) -> None:
        """Tell of the end when another service has taken the Lease. One that merely cannot be renewed is nobody else's."""
        lease = self.site.lease
        await lease.wait_held()
        while lease.held or lease.holder in {"", lease.identity}:
            await asyncio.sleep(LEASE_LOOK_S)
        _log.warning("the Lease %s is held by %s now", self.site.options.lease, lease.holder)
        self._deposed()

    async def _look_after(self) -> None:
        await self._nodes.synced()
        await self._pods.synced()
        await self._remember()
        while True:
            self._dirty.clear()
            try:
                await self._look()
            except GpufairError as err:
                _log.warning("pool %s: %s", self.site.pool, err)
            except Exception:  # noqa: BLE001  # the next look may go well, and nothing else would notice nodes
                _log.exception("a look at the cluster of pool %s failed", self.site.pool)
            await asyncio.sleep(REST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._dirty.wait()

    async def _remember(self) -> None:
        """Nodes that the core has from before: those that the cluster has no more are lost after a while, and removed later."""
        known = await self.site.runtime.read(lambda state: survey.in_core(self.site.pool, state))
        hosts = inventory.hosts_by_name(self._hosts(), {one.resource for one in known.values()})
        for name in known:
            self._keep(name, Place(name, hosts.get(name, name), ""))

    async def _look(self) -> None:
        site = self.site
        trouble = self._trouble()
        stale = self._nodes.stale_since is not None or self._pods.stale_since is not None
        if stale:
            # What is not seen is neither lost nor closed by that.
            for name in self.kept:
                site.hub.told(name, [trouble] if trouble else [], None)
            return
        self._booked = await site.runtime.read(survey.booked)
        found = inventory.offers(
            self._nodes.objects.values(), self._pods.objects.values(), site.pool, site.options, site.runtime.now(),
            self._counted(), self._remembered,
        )  # fmt: skip
        if site.lease.refused:  # whatever would be sent there could not begin
            found = tuple(offer.closed() for offer in found)
        offers = {offer.inventory.name: offer for offer in found}
        for name, offer in offers.items():
            place = Place(name, offer.host, offer.resource)
            if name not in self.kept:
                self._keep(name, place)
            self.kept[name].place = place
        theirs = await self.foreign.known()
        # Before nodes are told of: what is new, or open again, may be given to others' pods at once.
        await self.foreign.heed(theirs, Taints({name: offer.taints for name, offer in offers.items()}))
        await self._adopt()
        self.foreign.adopt(theirs, self.kept)
        await survey.tell(site, self.kept, offers, trouble, self._strangers.odd())
        for name in await survey.remove_past(site, self.kept, self._hosts()):
            if (task := self.kept.pop(name).task) is not None:
                task.cancel()
        if self._met():
            await self.foreign.look(theirs, self._pods.objects)

    def _met(self) -> bool:
        """Whether the core has heard of each node how it is now: until then one that was closed meanwhile is open to it."""
        if self._meeting is not None:
            self._meeting = self._meeting or time.monotonic()
            shy = [one for one in self.kept.values() if one.agent.there and not one.agent.greeted]
            if shy and time.monotonic() - self._meeting < MEETING_S:
                self._dirty.set()
                return False
            self._meeting = None
        return True

    def _hosts(self) -> set[str]:
        return {str(node["metadata"]["name"]) for node in self._nodes.objects.values()}

    def _counted(self) -> set[str]:
        """Uids of pods that the core counts. What no start of it has is subtracted, whatever it says of itself."""
        starts, uids = self._booked.starts, self._booked.uids
        ours = {life.made.uid for life in self.lives.values() if life.workload in starts}
        return {*uids, *ours, *self._strangers.of(starts)}

    def _keep(self, name: str, place: Place) -> None:
        agent = VirtualAgent(name, self.site.hub, self._begin, self._heed)
        self.kept[name] = Kept(agent, place, task=self._spawn(agent.run()))

    def _trouble(self) -> str:
        now, lease = time.monotonic(), self.site.lease
        for reflector in (self._nodes, self._pods):
            if reflector.stale_since is not None and now - reflector.stale_since > STALE_S:
                return str(reflector.trouble or "the Kubernetes API server is not heard")
        if lease.refused:
            return lease.refused
        if not lease.held:
            holder = lease.holder or "nobody"
            return f"nothing is changed in Kubernetes: the Lease {self.site.options.lease!r} is held by {holder}"
        return ""

    # -- pods -----------------------------------------------------------------------------------------------------

    async def _adopt(self) -> None:
        """Find out whose the pods are that no start of this service has made."""
        keys = self._strangers.read()
        if not keys:
            return
        homes = await self.site.runtime.read(lambda state: {name: home_of(state, key) for name, key in keys.items()})
        said = said_of(self._events.objects.values())
        for name, key in keys.items():
            if (pod := self._strangers.take(name)) is not None:
                for event in said.get(str(pod["metadata"]["uid"]), ()):
                    self.site.heed(event)
                self._adopt_one(pod, key, homes[name])

    def _adopt_one(self, pod: Object, key: PodKey, home: str) -> None:
        if (known := self.lives.get(pod_name(key))) is not None:
            known.observe(pod)
            return
        kept = self.kept.get(home or survey.place_of(pod, self.kept))
        if kept is None or (key.workload, key.incarnation) in kept.agent.lives:
            life = PodLife(self.site, None, key, None, pod, self.lives)
            life.abandon()
        else:
            life = PodLife(self.site, kept.agent, key, kept.place, pod, self.lives)
            kept.agent.join(life)
        self._live(life)

    def _begin(self, agent: VirtualAgent, command: Command) -> Life:
        key = PodKey(WorkloadId(command.workload), command.incarnation, rank_of(command))
        place = self.kept[agent.node].place
        if self.foreign.concerns(command):
            return self.foreign.begin(agent, command, key.rank, place)
        if (known := self.lives.get(pod_name(key))) is not None:
            known.claim(agent, place)
            return known
        life = PodLife(self.site, agent, key, place, mates=self.lives)
        if not self._strangers.anothers(life.name) and (stranger := self._strangers.take(life.name)) is not None:
            life.observe(stranger)
        self._live(life)
        return life

    async def _heed(self, agent: VirtualAgent) -> None:
        for key, reports in await missed(self.site, agent.node, agent.lives):
            _log.warning("pod %s is gone, and has left %d reports", pod_name(key), len(reports))
            await agent.last_words(reports)
            await heeded(self.site, key)

    def _live(self, life: PodLife) -> None:
        self.lives[life.name] = life
        self._spawn(self._run(life))

    async def _run(self, life: PodLife) -> None:
        while not life.over:
            try:
                await life.run()
            except Exception:  # noqa: BLE001  # one pod's trouble must not leave it on its own for ever
                _log.exception("looking after pod %s failed", life.name)
                await asyncio.sleep(1.0)
        if self.lives.get(life.name) is life:
            del self.lives[life.name]
        self.site.events.pop(life.made.uid, None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _address(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def new_identity() -> str:
    """Of a service, unlike any other's."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
