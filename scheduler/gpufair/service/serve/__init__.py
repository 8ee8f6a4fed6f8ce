"""``gpufair serve``: put the parts together, listen, and end in good order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from gpufair.clock import Clock, SystemClock
from gpufair.core.errors import GpufairError
from gpufair.paths import private_dir
from gpufair.paths import state_dir as find_state_dir
from gpufair.service.lifecycle.certificates import Certificates
from gpufair.service.lifecycle.interpreter import prepare
from gpufair.service.lifecycle.leading_pod import LeadingPod, Pod
from gpufair.service.lifecycle.listening import ServeError, only_service
from gpufair.service.serve.parts import Start
from gpufair.service.serve.turns import alone, take_turns
from gpufair.service.settings.config import UNTIL_IDLE, Config, find_config, load_config
from gpufair.service.settings.durations import parse_duration
from gpufair.service.web.gate import is_loopback

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
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
    stop = _on_signals()
    try:
        private_dir(state_dir)
    except OSError as err:
        raise ServeError(
            f"the state folder {state_dir} cannot be used: {err.strerror or err}; name another one with --state-dir"
        ) from err
    place = config.store.place(state_dir)
    certificates = await asyncio.to_thread(Certificates, config.tls) if config.tls else None
    start = Start(config, config_file, state_dir, place, clock or SystemClock(), embedded, certificates)
    with only_service(state_dir, several=not place.in_a_file):
        async with LeadingPod(Pod.own()) as pod:
            await (alone if place.in_a_file else take_turns)(start, stop, pod)
    _log.info("ended")


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
