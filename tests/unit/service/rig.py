"""A runtime on a virtual clock with a backend that only remembers, and the whole API in front of it without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.actions import Action, Start
from gpufair.core.model import Allocation, Kind, Node, Policy, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, SECOND, AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.service.api import build_app
from gpufair.service.backends.cpu_pool import CpuPool
from gpufair.service.backends.kubernetes.pools import KubernetesPools
from gpufair.service.backends.local import remotes
from gpufair.service.identity.attempts import Attempts
from gpufair.service.identity.auth import Authenticator
from gpufair.service.identity.secrets import Secrets
from gpufair.service.lifecycle import bootstrap
from gpufair.service.lifecycle.lifetime import Lifetime
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Options, Runtime
from gpufair.service.settings.budgets import Budgets
from gpufair.service.settings.config import Config, ServiceOptions
from gpufair.service.settings.profile_options import DEFAULT_PROFILES
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.store import sqlite_url
from gpufair.service.storage.tokens import Tokens
from gpufair.service.web.context import Context
from gpufair.service.workloads.turn import Turn
from gpufair.wire import NodeInventory
from tests.unit.service import contract

START = Instant(1_800_000_000_000)
TEAMS = (Allocation(AllocationPath("a")), Allocation(AllocationPath("b")))
POLICY = Policy(grace_session=Millis(10 * SECOND), grace_batch=Millis(5 * SECOND))


class Remembering:
    """A backend that performs nothing."""

    def __init__(self) -> None:
        self.actions: list[Action] = []

    def perform(self, actions: Sequence[Action], state: State) -> None:
        """Remember."""
        self.actions += actions

    def started(self) -> list[tuple[str, int]]:
        """(workload, incarnation) of each start."""
        return [(one.workload, one.held.incarnation) for one in self.actions if isinstance(one, Start)]


@asynccontextmanager
async def runtime_at(folder: Path, clock: VirtualClock, **options: Any) -> AsyncIterator[tuple[Runtime, Remembering]]:
    """A runtime on the journal in ``folder``."""
    journal = await Journal.open(sqlite_url(folder), "test")
    runtime = Runtime(journal, clock, Options(validate=True, **options))
    backend = Remembering()
    runtime.backend = backend
    try:
        await runtime.start()
        yield runtime, backend
    finally:
        await runtime.close()
        await journal.close()


def spec(allocation: str = "a", gpus: int = 1, min_runtime: Millis = HOUR, kind: Kind = Kind.SESSION) -> WorkloadSpec:
    """A small workload."""
    return WorkloadSpec(AllocationPath(allocation), "ada", kind, Shape(gpus), min_runtime, launch={"type": "kernel"})


async def cluster(runtime: Runtime, gpus: int = 1) -> None:
    """Budgets for two teams, one node."""

    def step(turn: Turn) -> None:
        turn.handle(ev.PolicyChanged(turn.now, turn.cause(), POLICY))
        turn.handle(ev.BudgetsApplied(turn.now, turn.cause(), TEAMS))
        turn.handle(ev.NodeJoined(turn.now, turn.cause(), Node(NodeName("n1"), gpus)))

    await runtime.do(step)


async def submit(runtime: Runtime, name: str, wanted: WorkloadSpec) -> None:
    """Submit and wait until it is durable."""
    await runtime.do(lambda turn: turn.handle(ev.Submitted(turn.now, turn.cause(), WorkloadId(name), wanted)))


async def quiet(runtime: Runtime) -> None:
    """Wait until every turn that is due has been taken."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        await runtime.do(lambda turn: None)


@asynccontextmanager
async def service_at(folder: Path, **changes: object) -> AsyncIterator[tuple[Context, httpx.AsyncClient]]:
    """The whole service without sockets and agents; the client carries the operator's token.

    ``users`` ada (team a) and bo (team b), operator olga, auditor abe, budget owner uma; node n1 with 2 GPUs.
    """
    clock = VirtualClock(START)
    config = Config(
        service=ServiceOptions(),
        policy=POLICY,
        profiles=DEFAULT_PROFILES,
        users=("ada", "bo"),
        operators=("olga",),
        auditors=("abe",),
        budget_owners={"uma": ("",)},
        budgets=Budgets(
            (Allocation(AllocationPath("a"), "1", ("ada",)), Allocation(AllocationPath("b"), "1", ("bo", "ada")))
        ),
    )
    config = replace(config, **changes)  # type: ignore[arg-type]  # by the caller's word
    secrets = Secrets.load(folder)
    journal = await Journal.open(sqlite_url(folder), "test")
    tokens = Tokens(journal, clock)
    await tokens.load()
    told, suggests = config.notifications.channels, config.suggest_cpu_after
    runtime = Runtime(journal, clock, Options(validate=True, suggest_cpu_after=suggests, channels=told))
    dispatcher = Dispatcher(folder, secrets)
    inventory = NodeInventory("n1", ("virtual-0", "virtual-1"), cpus=8, memory_bytes=64 << 30, labels={"rack": "r1"})
    far = remotes(config.nodes)
    hub = AgentHub(runtime, dispatcher, {"n1": inventory}, Millis(30 * SECOND), settle_s=0.05, remote=far)
    runtime.backend = hub
    await runtime.start()
    await bootstrap.apply_policy(runtime, config)
    await bootstrap.apply_budgets(runtime, journal, config)
    await hub.start()

    async def never_busy() -> bool:
        return False

    authenticator = Authenticator(
        secrets, "owner", config.users, config.operators, config.budget_owners, config.auditors, tokens,
        Attempts(config.service.wrong_tokens_per_minute),
    )  # fmt: skip
    await authenticator.use_hub(config.hub)
    pods = PodLines(runtime.now)
    kubernetes = await KubernetesPools.open(config, runtime, hub, dispatcher, pods, secrets, journal, lambda: None)
    it = Context(
        config=config,
        state_dir=folder,
        secrets=secrets,
        authenticator=authenticator,
        tokens=tokens,
        journal=journal,
        runtime=runtime,
        dispatcher=dispatcher,
        hub=hub,
        lifetime=Lifetime(clock, Millis(900 * SECOND), never_busy),
        cpu_pool=CpuPool(config.cpu_pool, folder, runtime, None),
        started_at=clock.now(),
        version="test",
        embedded=True,
        pods=pods,
        kubernetes=kubernetes,
    )
    transport = httpx.ASGITransport(build_app(it))
    headers = {"Authorization": f"Bearer {secrets.operator_token()}"}
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [contract.check]}
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:1", headers=headers, event_hooks=hooks
        ) as client:
            yield it, client
    finally:
        it.lifetime.ending.set()
        await authenticator.close()
        await kubernetes.close()
        await hub.close()
        await runtime.close()
        await journal.close()


def bearer(token: str) -> dict[str, str]:
    """The header for a token."""
    return {"Authorization": f"Bearer {token}"}


LAUNCH = {"type": "kernel", "argv": ["python", "-m", "x", "-f", "{connection_file}"], "cwd": "/tmp"}
