"""The pool of the scheduler service: asked for, and told who we are."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufair.client.endpoint import Endpoint, discover
from gpufair.client.errors import ClientError, Unavailable
from gpufair.cpu import resident
from gpufair.cpu.errors import PoolMissing
from gpufair.cpu.waiting import TURNS
from gpufair.paths import REMOTE

if TYPE_CHECKING:
    from gpufair.client.machines import CpuPool

ADDRESS = "GPUFAIR_CPU_POOL"  # environment variable: of a Dask scheduler to use
WAIT_S = 90.0  # a loaded machine takes its time to import Dask and to start a worker
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Served:
    """Where it is and what opens it (PEM texts; empty for a pool without TLS). ``leaf`` and ``user``: whose tasks ours are."""

    address: str
    leaf: str
    user: str
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    def security(self) -> Any:
        """What Dask needs to talk to it; None without TLS."""
        import distributed  # noqa: PLC0415 - as in ``resident``

        if not self.ca:
            return None
        return distributed.Security(  # type: ignore[no-untyped-call]
            require_encryption=True, tls_ca_file=self.ca, tls_client_cert=self.certificate, tls_client_key=self.key
        )


def service(folder: Path | None = None) -> Endpoint | None:
    """The service of this process, or of a state folder; nothing is sent. None where there is none, whatever the reason."""
    try:
        return discover(folder=folder)
    except Unavailable:
        return None


def chosen(folder: Path | None = None) -> tuple[str, CpuPool | None]:
    """Which pool a notebook uses by default, and what the service says of its own (None: no service, or it does not answer).

    ``address`` ($GPUFAIR_CPU_POOL), ``own`` (of `gpufair cpu start`), ``service``, or ``process``: workers of the notebook's.
    """
    kept = None
    if (endpoint := service(folder)) is not None:
        from gpufair.client.sync import Client  # noqa: PLC0415 - as below

        with suppress(ClientError), Client(endpoint) as client:
            kept = client.cpu_pool()
            if kept.kept and not endpoint.loopback:
                kept = replace(kept, state="off", reason="it is on another machine")
    if os.environ.get(ADDRESS):
        return "address", kept
    if resident.found(folder) is not None:
        return "own", kept
    return ("service" if kept is not None and kept.state not in {"off", "failed"} else "process"), kept


def ask(wait_s: float = WAIT_S, *, start: bool = True) -> Served | None:
    """The service's pool, started if need be and ``start``; None where no service is, or it has none for us.

    Raises:
        PoolMissing: It should be there, and is not, or is on another machine.
        ClientError: The service does not answer, or refuses.
    """
    endpoint = service()
    if endpoint is None:
        if os.environ.get(REMOTE):
            raise _out_of_reach()
        return None
    from gpufair.client.sync import Client  # noqa: PLC0415 - a tenth of a second, for who has a service only

    until = time.monotonic() + wait_s
    with Client(endpoint) as client:
        now = client.cpu_pool()
        if (now.kept and not endpoint.loopback) or not (start or now.state == "running"):
            return None  # it listens on the service's own machine only
        while True:
            told = client.join_cpu_pool(os.environ.get("GPUFAIR_WORKLOAD"))
            if told.state == "off":
                return None
            if told.state == "running":
                return Served(told.address, told.allocation, told.user, told.ca, told.certificate, told.key)
            if told.state == "failed" or time.monotonic() > until:
                raise PoolMissing("the CPU pool of the scheduler service", told.reason or "it did not come up in time", "ask its operator")
            time.sleep(_POLL_S)


def _out_of_reach() -> PoolMissing:
    node = os.environ.get("GPUFAIR_NODE", "another machine")
    return PoolMissing(
        "the CPU pool of the scheduler service",
        f"it is reached on the service's own machine only, and this kernel is on {node}",
        f"open the notebook on a node of that machine, give cpu.connect() the address of a pool that {node} can reach, or ask "
        f"the operator to set ${ADDRESS} for what runs on {node}",
    )


def introduce(client: Any, leaf: str, user: str) -> None:
    """Say whose tasks those of a Dask client are; a scheduler that gives no turns is not interested."""

    def hello(plugin: str, client: str, leaf: str, user: str, dask_scheduler: Any) -> None:
        if (turns := dask_scheduler.plugins.get(plugin)) is not None:
            turns.introduce(client, leaf, user)

    client.run_on_scheduler(hello, TURNS, client.id, leaf, user)
