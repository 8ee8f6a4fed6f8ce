"""What all parts of one pool's backend share: how the cluster is asked, and what the service knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.lease import Lease
from gpufair.service.backends.kubernetes.pace import Pace
from gpufair.service.backends.kubernetes.refusals import Refusals
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import PodTemplate

ANSWER_S: Final = 10.0  # that one call may take: whoever waits for it may want something else by then
KEPT_EVENTS: Final = 10  # of one pod


@dataclass(slots=True)
class Site:
    """One cluster behind a pool.

    Attributes:
        template_of: The pods of a profile, by its name; "" is none.
        pace: Of starts.
        refusals: By nodes, of pods that were bound to them.
        service_ca: What was last read of that file.
        events: What Kubernetes says of pods, by uid, the last of it.
    """

    pool: str
    options: KubernetesOptions
    api: Api
    lease: Lease
    lines: PodLines
    hub: AgentHub
    dispatcher: Dispatcher
    runtime: Runtime
    secrets: Secrets
    template_of: Callable[[str], PodTemplate]
    pace: Pace = field(default_factory=Pace)
    refusals: Refusals = field(default_factory=Refusals)
    service_ca: str = ""
    events: dict[str, deque[Mapping[str, Any]]] = field(default_factory=dict)

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        """Of our objects of one kind, or of one of them."""
        return "/".join(part for part in (f"/api/v1/namespaces/{self.options.namespace}/{plural}", name, sub) if part)

    async def read(self, path: str) -> dict[str, Any]:
        """One object. Raises ``KubernetesProblem``."""
        return await self.api.call("GET", path, timeout_s=ANSWER_S)

    async def write(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One change, as soon as this service holds the Lease. Raises ``KubernetesProblem``."""
        await self.lease.wait_held()
        return await self.api.call(method, path, body, timeout_s=ANSWER_S)

    def heed(self, event: Mapping[str, Any]) -> str:
        """Keep an event of a pod. Returns the pod's uid."""
        uid = str((event.get("involvedObject") or {}).get("uid", ""))
        if uid:
            self.events.setdefault(uid, deque(maxlen=KEPT_EVENTS)).append(event)
        return uid
