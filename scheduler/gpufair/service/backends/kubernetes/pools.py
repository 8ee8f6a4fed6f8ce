"""All pools that are Kubernetes clusters, and the one place where their pods' reports arrive."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Self

from gpufair.service.backends.kubernetes.marks import JournalMarks
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.problems import UnknownPod
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.config import Config
from gpufair.service.settings.pod_template import PodTemplate
from gpufair.service.storage.journal import Journal
from gpufair.wire import Report

if TYPE_CHECKING:
    from gpufair.service.backends.kubernetes.cluster import KubernetesCluster

_log = logging.getLogger(__name__)


def kept_pools(config: Config) -> tuple[str, ...]:
    """The names of the pools whose nodes are told by a Kubernetes API server."""
    return tuple(pool.name for pool in config.pools if pool.kubernetes is not None)


class KubernetesPools:
    """The clusters of a service. ``open``, ``start``, ``close``."""

    def __init__(
        self, clusters: Sequence[KubernetesCluster], lines: PodLines, templates: dict[str, PodTemplate] | None = None
    ) -> None:
        self.clusters = tuple(clusters)
        self._templates = {} if templates is None else templates
        if self.clusters:
            lines.on_reports = self._heard

    @classmethod
    async def open(
        cls,
        config: Config,
        runtime: Runtime,
        hub: AgentHub,
        dispatcher: Dispatcher,
        lines: PodLines,
        key: Secrets,
        journal: Journal,
        deposed: Callable[[], None],
    ) -> Self:
        """Read how each cluster is reached.

        Args:
            journal: What says which pods are ours to end.
            deposed: Called when another service has taken over a Lease of this one, which then has to step down.

        Raises:
            NoApiServer: The settings of one lead nowhere.
        """
        pools = [(pool.name, pool.kubernetes) for pool in config.pools if pool.kubernetes is not None]
        if not pools:
            return cls((), lines)
        from gpufair.service.backends.kubernetes.checkup import places  # noqa: PLC0415  # heavy; a laptop need not pay
        from gpufair.service.backends.kubernetes.cluster import KubernetesCluster, new_identity  # noqa: PLC0415  # heavy; a laptop need not pay

        templates = _templates(config)

        def template_of(profile: str) -> PodTemplate:
            return templates.get(profile) or PodTemplate()

        clusters: list[KubernetesCluster] = []
        identity = new_identity()
        try:
            for name, options in pools:
                if not (options.claim or config.checkpoint_url):
                    _log.warning(
                        "pool %s: its pods share no folder with this service, and checkpoints are kept in one: sessions there can be "
                        "saved only if a profile's volumes bring that folder; name a claim in [pool.kubernetes], or an object "
                        "store as url in [checkpoints]", name,
                    )  # fmt: skip
                for found in places(options):
                    _log.warning("pool %s: %s; %s", name, found.said, found.advice)
                cluster = await KubernetesCluster.open(
                    name, options, runtime=runtime, hub=hub, dispatcher=dispatcher, lines=lines, key=key,
                    template_of=template_of, deposed=deposed, identity=identity,
                    marks=JournalMarks(journal, key, options.take_over),
                )  # fmt: skip
                clusters.append(cluster)
        except BaseException:
            for cluster in clusters:
                await cluster.close()
            raise
        return cls(clusters, lines, templates)

    def configure(self, config: Config) -> None:
        """Use the profiles of this configuration from now on; what runs keeps the pod that it has."""
        self._templates.clear()
        self._templates.update(_templates(config))

    @contextlib.asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """For what may start pods once it is decided: wait until few enough are under way (``Pace.turn``)."""
        async with contextlib.AsyncExitStack() as stack:
            for cluster in self.clusters:
                await stack.enter_async_context(cluster.site.pace.turn(user))
            yield

    def start(self) -> None:
        """Begin to watch, and to carry out."""
        for cluster in self.clusters:
            cluster.start()

    async def close(self) -> None:
        """Stop; what runs in the clusters goes on."""
        for cluster in self.clusters:
            await cluster.close()

    async def _heard(self, pod: str, reports: Sequence[Report]) -> None:
        for cluster in self.clusters:
            if pod in cluster.lives:
                await cluster.heard(pod, reports)
                return
        raise UnknownPod(pod)


def _templates(config: Config) -> dict[str, PodTemplate]:
    return {profile.name: profile.pod for profile in config.profiles if profile.pod is not None}
