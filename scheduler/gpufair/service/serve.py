"""``gpufair serve``: put the parts together, listen, and end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import ssl
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from fastapi import FastAPI

from gpufair.clock import Clock, SystemClock
from gpufair.core.errors import GpufairError
from gpufair.core.model import Phase
from gpufair.core.state import State
from gpufair.core.units import Millis
from gpufair.node.files import read_json, write_json
from gpufair.paths import SERVICE_FILE, private_dir
from gpufair.paths import state_dir as find_state_dir
from gpufair.service.api import build_app
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
from gpufair.service.lifecycle import bootstrap, closing
from gpufair.service.lifecycle.certificates import Certificates
from gpufair.service.lifecycle.interpreter import prepare
from gpufair.service.lifecycle.leading_pod import LeadingPod, Pod
from gpufair.service.lifecycle.lifetime import Lifetime
from gpufair.service.lifecycle.listening import ServeError, Server, listen, only_service, url_of
from gpufair.service.lifecycle.standby import options as http_options
from gpufair.service.lifecycle.standby import stand_by
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Options, Runtime
from gpufair.service.settings.config import UNTIL_IDLE, Config, find_config, load_config
from gpufair.service.settings.durations import parse_duration
from gpufair.service.storage.database import Place
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.leadership import Deposed, Leadership
from gpufair.service.storage.tokens import Tokens
from gpufair.service.web.context import Context
from gpufair.service.web.gate import is_loopback

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
# With "until idle" a service that was killed leaves agents that would otherwise wait for ever.
ORPHAN_LINGER = Millis(15 * 60_000)
LEAST_WATCH, MOST_WATCH = Millis(500), Millis(10_000)  # between two looks of an agent whether GPUs are used
_log = logging.getLogger("gpufair.service")


def run(
    config: str | os.PathLike[str] | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    embedded: bool = False,
    linger: str | None = None,
    insecure: bool = False,
) -> int:
    """Run the service until it is told to end. Prints clear errors; never raises for what a user can mend.

    Args:
        config: The configuration file; None: the usual places.
        state_dir: The state folder; None: as ``gpufair.paths.state_dir`` finds it.
        host: Overrides ``[service] host``.
        port: Overrides ``[service] port``.
        embedded: End some time after the last Jupyter server has gone, with every session parked.
        linger: That time, ``15m`` or ``until idle``; overrides ``[service] linger``.
        insecure: Without TLS on an address that other machines reach, too; overrides ``[service] insecure``.

    Returns: 0 after a proper end, 1 if it could not run, 2 for a wrong configuration.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        config_file = find_config(config)
        options = _overridden(load_config(config_file), host, port, linger, insecure=insecure)
    except GpufairError as err:
        print(f"gpufair serve: {err}", file=sys.stderr)  # noqa: T201  # the console is the interface
        return EXIT_USAGE
    prepare()
    try:
        asyncio.run(serve(options, find_state_dir(state_dir), embedded=embedded, config_file=config_file))
    except (GpufairError, OSError) as err:
        print(f"gpufair serve: {err}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_FAILED
    return EXIT_OK


async def serve(
    config: Config, state_dir: Path, *, embedded: bool, config_file: Path | None = None, clock: Clock | None = None
) -> None:
    """Serve until SIGTERM, SIGINT, or, embedded, until nobody has held the service for the linger time.

    Args:
        config_file: Where ``config`` came from; noted for whoever has to start the service again after a crash.

    Raises:
        GpufairError: It can't be started: another service has the folder, the port is taken, the journal is damaged...
    """
    clock = clock or SystemClock()
    stop = _on_signals()
    try:
        private_dir(state_dir)
    except OSError as err:
        raise ServeError(
            f"the state folder {state_dir} cannot be used: {err.strerror or err}; name another one with --state-dir"
        ) from err
    place = config.store.place(state_dir)
    certificates = await asyncio.to_thread(Certificates, config.tls) if config.tls else None
    with only_service(state_dir, several=not place.in_a_file):
        async with LeadingPod(Pod.own()) as pod:
            if place.in_a_file:
                await _alone(config, state_dir, clock, embedded, place, certificates, config_file, stop, pod)
            else:
                await _take_turns(config, state_dir, clock, embedded, place, certificates, config_file, stop, pod)
    _log.info("ended")


async def _alone(
    config: Config,
    state_dir: Path,
    clock: Clock,
    embedded: bool,
    place: Place,
    certificates: Certificates | None,
    config_file: Path | None,
    stop: asyncio.Event,
    pod: LeadingPod,
) -> None:
    """Serve until told to end; begin again where a service with another journal had taken over a cluster of this one."""
    deposed = asyncio.Event()
    while True:
        deposed.clear()
        async with contextlib.AsyncExitStack() as stack:
            it, agents, listener = await _open(
                stack, config, state_dir, clock, embedded, place, certificates, deposed=deposed
            )
            pod.say(leads=True)
            await _serve(stack, it, agents, listener, config_file, stop, deposed)
        if stop.is_set() or not deposed.is_set():
            return
        pod.say(leads=False)
        _log.warning("another service has the Lease of a cluster of this one: beginning again, and waiting for it")


async def _take_turns(
    config: Config,
    state_dir: Path,
    clock: Clock,
    embedded: bool,
    place: Place,
    certificates: Certificates | None,
    config_file: Path | None,
    stop: asyncio.Event,
    pod: LeadingPod,
) -> None:
    """Stand by until this service leads; serve until another one does; begin again."""
    while not stop.is_set():
        pod.say(leads=False)  # it may have been said by a container before this one
        async with contextlib.AsyncExitStack() as stack:
            leadership = await stack.enter_async_context(Leadership(place))
            port = await stand_by(leadership, config.service.host, config.service.port, stop, _tls(certificates))
            config = replace(config, service=replace(config.service, port=port))
            if not leadership.epoch:
                return
            _log.info("leading, in epoch %d", leadership.epoch)
            deposed = asyncio.Event()
            stack.push_async_callback(_cancelled, asyncio.create_task(_hold(leadership, state_dir, deposed)))
            with contextlib.suppress(Deposed):
                it, agents, listener = await _open(
                    stack, config, state_dir, clock, embedded, place, certificates, leadership.epoch, deposed
                )
                pod.say(leads=True)
                await _serve(stack, it, agents, listener, config_file, stop, deposed)
            if not deposed.is_set() and not stop.is_set():
                return  # nobody has been here for the linger time
        _log.warning("another service leads: standing by")


async def _hold(leadership: Leadership, state_dir: Path, deposed: asyncio.Event) -> None:
    def elsewhere() -> bool:
        told = read_json(state_dir / SERVICE_FILE) or {}
        epoch = told.get("epoch")
        return isinstance(epoch, int) and epoch > leadership.epoch

    await leadership.hold(elsewhere)
    deposed.set()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _open(
    stack: contextlib.AsyncExitStack,
    config: Config,
    state_dir: Path,
    clock: Clock,
    embedded: bool,
    place: Place,
    certificates: Certificates | None,
    epoch: int = 0,
    deposed: asyncio.Event | None = None,
) -> tuple[Context, LocalAgents, socket.socket]:
    """All parts, started in the order in which they need each other; the stack closes them in reverse."""
    version = metadata.version("jupyter-gpufair")
    secrets = Secrets.load(state_dir)
    listener = stack.enter_context(listen(config.service.host, config.service.port))
    nodes = await asyncio.to_thread(inventories, config.nodes)
    owner = owner_name()
    write_tokens(state_dir, secrets, config)
    # Nobody stands by who could upgrade a laptop's journal; a shared one others may be using.
    journal = await Journal.open(place, version, epoch=epoch, upgrade=embedded)
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
    step_down = deposed.set if deposed is not None else (lambda: None)
    kubernetes = await KubernetesPools.open(config, runtime, hub, dispatcher, pods, secrets, journal, step_down)
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
        embedded=embedded,
        pods=pods,
        certificates=certificates,
        kubernetes=kubernetes,
    )
    return it, agents, listener


def _tls(certificates: Certificates | None) -> ssl.SSLContext | None:
    return None if certificates is None else certificates.context


async def _listen(
    stack: contextlib.AsyncExitStack, it: Context, app: FastAPI, listener: socket.socket, tls: ssl.SSLContext | None
) -> asyncio.Task[None]:
    """Serve ``app`` there; what is returned ends with that."""
    server = Server(http_options(app, tls, it.config.service.proxies))
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    stack.push_async_callback(_end_http, server, serving, it)
    await server.wait_listening(serving)
    return serving


def _unlink_own(service_file: Path, info: dict[str, object]) -> None:
    """Remove the file, unless it is another service's: somebody may have removed our folder and started that one.

    In containers all have the same pid, so everything in it is compared.
    """
    with contextlib.suppress(OSError, ValueError):
        if json.loads(service_file.read_bytes()) == info:
            service_file.unlink()


async def _serve(
    stack: contextlib.AsyncExitStack,
    it: Context,
    agents: LocalAgents,
    listener: socket.socket,
    config_file: Path | None,
    stop: asyncio.Event,
    deposed: asyncio.Event,
) -> None:
    app = build_app(it)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.state.reloader.reload_soon)
    serving = await _listen(stack, it, app, listener, _tls(it.certificates))
    url = url_of(listener, "http" if it.certificates is None else "https")
    near = url
    if it.certificates is not None:
        # Agents of this machine and who has the state folder know the service by its file, not by a certificate's name.
        local = stack.enter_context(listen("127.0.0.1", 0))
        await _listen(stack, it, app, local, None)
        near = url_of(local, "http")
    service_file = it.state_dir / SERVICE_FILE
    info: dict[str, object] = {
        "url": near,
        "token": it.secrets.operator_token(),
        "pid": os.getpid(),
        "started_s": it.started_at / 1000,
        "version": it.version,
        "epoch": it.hub.epoch,
        "config": None if config_file is None else str(config_file),
    }
    await asyncio.to_thread(write_json, service_file, info)
    stack.callback(_unlink_own, service_file, info)
    # After the file: the agents look there for the address.
    await agents.start()
    stack.push_async_callback(agents.leave)
    await it.cpu_pool.start()
    stack.push_async_callback(it.cpu_pool.leave)
    _log.info("listening on %s, state in %s", url, it.state_dir)
    if it.certificates is None and not is_loopback(listener.getsockname()[0]):
        _log.warning("other machines can reach this, and tokens travel unencrypted: see [tls] of gpufair.toml")
    await _until_over(it, stop, deposed, serving)
    if it.embedded and not serving.done() and not deposed.is_set():
        await _park_everything(it, agents, stop)


async def _until_over(
    it: Context, stop: asyncio.Event, deposed: asyncio.Event, serving: asyncio.Task[None]
) -> None:
    waits: set[asyncio.Task[object]] = {asyncio.create_task(_told(stop)), asyncio.create_task(_told(deposed))}
    if it.embedded:
        waits.add(asyncio.create_task(_over(it.lifetime)))
    try:
        await asyncio.wait({*waits, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if serving.done():
        raise ServeError(f"the HTTP server ended by itself: {serving.exception() or 'no reason was given'}")
    if deposed.is_set():
        return
    _log.info("told to end" if stop.is_set() else "nobody has been here for the linger time: ending")


async def _park_everything(it: Context, agents: LocalAgents, stop: asyncio.Event) -> None:
    """Park all sessions and end the agents. A second signal cuts it short: supervisors then wait for the next service."""
    stop.clear()
    parking = asyncio.create_task(closing.park_all(it.runtime, it.journal, it.dispatcher))
    impatient = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({parking, impatient}, return_when=asyncio.FIRST_COMPLETED)
        if not parking.done():
            _log.warning("told to end again: workloads go on by themselves until the next service")
            return
        if not parking.result():
            _log.error("not everything has left its GPUs; its agents go on until the next service")
            return
        await agents.stop()
        await it.cpu_pool.stop()
        await closing.lose_all_nodes(it.runtime)
        _log.info("every session is parked; the next start offers them for resuming")
    finally:
        for task in (parking, impatient):
            task.cancel()
        await asyncio.gather(parking, impatient, return_exceptions=True)


async def _end_http(server: Server, serving: asyncio.Task[None], it: Context) -> None:
    it.lifetime.ending.set()  # event streams end, so that nobody has to be cut off
    it.pods.close()
    await it.hub.close()  # and so do the agents' polls
    server.should_exit = True
    await asyncio.gather(serving, return_exceptions=True)
    # A quick next start is worth one more write; without it the journal is enough.
    await it.runtime.snapshot()


async def _told(stop: asyncio.Event) -> object:
    return await stop.wait()


async def _over(lifetime: Lifetime) -> object:
    await lifetime.wait_over()
    return None


def _busy(state: State) -> bool:
    """Whether somebody waits for something: a cell that runs, or a place in the queue."""
    resting = (Phase.PARKED, Phase.ENDED)
    return any(
        record.phase not in resting
        and not (record.phase is Phase.RUNNING and record.spec.kind == "session" and not record.busy)
        for record in state.facts.records.values()
    )


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _overridden(config: Config, host: str | None, port: int | None, linger: str | None, *, insecure: bool) -> Config:
    service = config.service
    if host is not None:
        service = replace(service, host=host)
    if port is not None:
        service = replace(service, port=port)
    if linger is not None:
        try:
            service = replace(service, linger=None if linger == UNTIL_IDLE else parse_duration(linger))
        except ValueError as err:
            raise ServeError(f'--linger: {err}, or "{UNTIL_IDLE}"') from err
    if insecure:
        service = replace(service, insecure=True)
    if not (is_loopback(service.host) or config.tls or service.insecure):
        raise ServeError(
            f"host {service.host!r} can be reached by other machines, and tokens would travel unencrypted; name a certificate and "
            "its key in [tls] of gpufair.toml, or listen on 127.0.0.1 behind a proxy with TLS ([service] names), or say "
            "insecure = true in [service] (or --insecure) on a network of your own"
        )
    return replace(config, service=service)
