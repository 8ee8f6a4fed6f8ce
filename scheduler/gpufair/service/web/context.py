"""What every route needs, in one place."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from starlette.requests import HTTPConnection

from gpufair.core.units import Instant
from gpufair.service.backends.cpu_pool import CpuPool
from gpufair.service.backends.kubernetes.pools import KubernetesPools
from gpufair.service.identity.auth import Authenticator, Principal
from gpufair.service.identity.links import Links
from gpufair.service.identity.secrets import Secrets
from gpufair.service.insight.history import History
from gpufair.service.insight.outputs import Outputs
from gpufair.service.lifecycle.certificates import Certificates
from gpufair.service.lifecycle.lifetime import Lifetime
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.config import Config
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running service."""

    config: Config
    state_dir: Path
    secrets: Secrets
    authenticator: Authenticator
    tokens: Tokens
    journal: Journal
    runtime: Runtime
    dispatcher: Dispatcher
    hub: AgentHub
    lifetime: Lifetime
    cpu_pool: CpuPool
    started_at: Instant
    version: str
    embedded: bool
    outputs: Outputs = field(default_factory=Outputs)
    history: History = field(default_factory=History)
    links: Links = field(default_factory=Links)
    pods: PodLines = field(default_factory=PodLines)
    certificates: Certificates | None = None
    kubernetes: KubernetesPools | None = None

    def turn(self, user: str) -> AbstractAsyncContextManager[None]:
        """For what may start something at once: ``KubernetesPools.turn``."""
        return nullcontext() if self.kubernetes is None else self.kubernetes.turn(user)


def context(connection: HTTPConnection) -> Context:
    """The context of the service that serves this request."""
    return cast(Context, cast(Any, connection.app).state.context)


def principal(connection: HTTPConnection) -> Principal:
    """Who asks; the gate has made sure that there is somebody."""
    return cast(Principal, connection.scope["gpufair.principal"])
