"""The parts of a service, put together."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from gpufair.clock import Clock
from gpufair.core.model import Phase
from gpufair.core.state import State
from gpufair.core.units import Millis
from gpufair.service.archives.keeping import Keeper
from gpufair.service.backends.clusters import Clusters
from gpufair.service.backends.cpu_pool import CpuPool
from gpufair.service.backends.kubernetes.pools import KubernetesPools, kept_pools
from gpufair.service.backends.local import LocalAgents, inventories, remotes
from gpufair.service.delivery.telling import tell
from gpufair.service.identity.attempts import Attempts
from gpufair.service.identity.auth import Authenticator, owner_name
from gpufair.service.identity.secrets import Secrets
from gpufair.service.identity.token_files import write_tokens
from gpufair.service.lifecycle import bootstrap
from gpufair.service.lifecycle.certificates import Certificates
from gpufair.service.lifecycle.lifetime import Lifetime
from gpufair.service.lifecycle.listening import listen
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Options, Runtime
from gpufair.service.settings.config import Config
from gpufair.service.storage.database import Place
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.tokens import Tokens
from gpufair.service.web.context import Context

# With "until idle" a service that was killed leaves agents that would otherwise wait for ever.
ORPHAN_LINGER = Millis(15 * 60_000)
LEAST_WATCH, MOST_WATCH = Millis(500), Millis(10_000)  # between two looks of an agent whether GPUs are used


@dataclass(frozen=True)
class Start:
    """What a service is started with. ``config_file``: where ``config`` came from, None: it was made up."""

    config: Config
    config_file: Path | None
    state_dir: Path
    place: Place
    clock: Clock
    embedded: bool
    certificates: Certificates | None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to serve with."""
        return None if self.certificates is None else self.certificates.context


@dataclass(frozen=True)
class Parts:
    """A service that has all but its HTTP server: ``listener`` is there already."""

    start: Start
    it: Context
    agents: LocalAgents
    listener: socket.socket


async def open_parts(
    stack: contextlib.AsyncExitStack, start: Start, deposed: asyncio.Event, epoch: int = 0
) -> Parts:
    """Make and start all parts in the order in which they need each other; the stack closes them in reverse.

    Args:
        deposed: Set by a part that finds out that another service has taken over.
        epoch: Of this service's leadership; 0 where none can take turns.
    """
    config, state_dir, place, clock = start.config, start.state_dir, start.place, start.clock
    version = metadata.version("jupyter-gpufair")
    secrets = Secrets.load(state_dir)
    listener = stack.enter_context(listen(config.service.host, config.service.port))
    nodes = await asyncio.to_thread(inventories, config.nodes)
    owner = owner_name()
    write_tokens(state_dir, secrets, config)
    # Nobody stands by who could upgrade a laptop's journal; a shared one others may be using.
    journal = await Journal.open(place, version, epoch=epoch, upgrade=start.embedded)
    stack.push_async_callback(journal.close)
    tokens = Tokens(journal, clock)
    await tokens.load()
    told = config.notifications
    options = Options(config.service.snapshot_every, config.suggest_cpu_after, channels=told.channels)
    runtime = Runtime(journal, clock, options)
    await runtime.start()
    stack.push_async_callback(runtime.close)
    await tell(stack, runtime, journal, clock, told)
    if config.store.keep:
        keeper = Keeper(journal, place, state_dir, clock, config.store.keep)
        keeper.start()
        stack.push_async_callback(keeper.close)
    dispatcher = Dispatcher(state_dir, secrets, config.autosave_share, config.checkpoint_store, config.checkpoint_url)
    hub = AgentHub(
        runtime, dispatcher, nodes, config.service.agent_silence, remote=remotes(config.nodes), epoch=epoch,
        kept=kept_pools(config),
    )  # fmt: skip
    pods = PodLines(runtime.now, epoch=epoch)
    stack.callback(pods.close)
    # Kubernetes clusters have virtual agents, so the hub speaks with theirs, too.
    runtime.backend = Clusters(hub)
    await bootstrap.apply_policy(runtime, config)
    await bootstrap.apply_budgets(runtime, journal, config)
    await hub.start()
    stack.push_async_callback(hub.close)
    await bootstrap.uncordon(runtime, journal)
    kubernetes = await KubernetesPools.open(config, runtime, hub, dispatcher, pods, secrets, journal, deposed.set)
    stack.push_async_callback(kubernetes.close)
    kubernetes.start()
    linger = config.service.linger
    # Often enough that a suggestion comes and goes in time.
    watch = Millis(max(LEAST_WATCH, min(MOST_WATCH, config.suggest_cpu_after // 5))) if config.suggest_cpu_after else None
    agents = LocalAgents(
        state_dir, secrets, nodes, ORPHAN_LINGER if linger is None else linger, config.policy.grace_session, watch
    )
    authenticator = Authenticator(
        secrets, owner, config.users, config.operators, config.budget_owners, config.auditors, tokens,
        Attempts(config.service.wrong_tokens_per_minute),
    )  # fmt: skip
    await authenticator.use_hub(config.hub)
    stack.push_async_callback(authenticator.close)
    it = Context(
        config=config,
        state_dir=state_dir,
        secrets=secrets,
        authenticator=authenticator,
        tokens=tokens,
        journal=journal,
        runtime=runtime,
        dispatcher=dispatcher,
        hub=hub,
        lifetime=Lifetime(clock, linger, lambda: runtime.read(_busy)),
        cpu_pool=CpuPool(config.cpu_pool, state_dir, runtime, linger),
        started_at=clock.now(),
        version=version,
        embedded=start.embedded,
        pods=pods,
        certificates=start.certificates,
        kubernetes=kubernetes,
    )
    return Parts(start, it, agents, listener)


def _busy(state: State) -> bool:
    """Whether somebody waits for something: a cell that runs, or a place in the queue."""
    resting = (Phase.PARKED, Phase.ENDED)
    return any(
        record.phase not in resting
        and not (record.phase is Phase.RUNNING and record.spec.kind == "session" and not record.busy)
        for record in state.facts.records.values()
    )
