"""The CPU pool in a cluster of a dask-gateway: one for each allocation and set of options, shared by its user's notebooks.

Which cluster it is lies in the state folder, so that a notebook finds the one that another has started. Nothing but
``stop`` ends it, or the gateway when nothing ran in it for its ``idle_timeout``. Who is who says Dask's own configuration
(``gateway.auth``): a JupyterHub, Kerberos, or a password.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import distributed

from gpufair.cpu.errors import PoolMissing
from gpufair.node.files import read_json, try_lock, write_json
from gpufair.paths import private_dir, state_dir

_SCHEMES = {"gateway": "https", "gateway+https": "https", "gateway+http": "http"}
_FILES = "cpu-gateway-"
_ASK_S = 30.0  # for an answer that waits for nothing but the gateway
_POLL_S = 0.5
_TELL_AFTER_S = 5.0


@dataclass(frozen=True)
class Cluster:
    """What is known of one. ``status`` is the gateway's word, or ``gone``."""

    gateway: str
    name: str
    allocation: str
    status: str
    address: str = ""
    security: Any = None
    dashboard: str | None = None


def meant(address: str) -> bool:
    """Whether it is the address of a gateway: ``gateway://host…``, ``gateway+http://host…``, or ``gateway:`` for Dask's own."""
    return address.partition(":")[0] in _SCHEMES


def found(
    address: str,
    *,
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    wait_s: float,
    folder: Path | None = None,
) -> Cluster:
    """The running cluster with a worker at least; started, if none of ours runs there with these options.

    Args:
        address: See ``meant``.
        workers: How many at most; by default what the gateway allows.
        options: Of the gateway's, as the image; beyond those that Dask's configuration names.
        wait_s: For the cluster and its first worker, each.
        folder: State folder; default as in ``gpufair.paths.state_dir``.

    Raises:
        PoolMissing: No answer, refused, or not there in time.
    """
    allocation = os.environ.get("GPUFAIR_ALLOCATION", "")
    with _gateway(address) as gateway:
        file = _file(folder, gateway.address, allocation, options or {})
        with _locked(file.with_suffix(".lock")):
            known = read_json(file) or {}
            if _report(gateway, known.get("cluster")) is None:
                known = {"gateway": gateway.address, "cluster": gateway.submit(**options or {}), "allocation": allocation}
                write_json(file, known)
        name = known["cluster"]
        report = _running(gateway, name, wait_s)
        if workers is not None or not known.get("adaptive"):
            gateway.adapt_cluster(name, minimum=1, maximum=workers)  # which it refuses before it runs
            write_json(file, {**known, "adaptive": True})
        _first_worker(gateway.address, report, wait_s)
        return _seen(gateway.address, name, allocation, report)


def again(address: str, folder: Path | None = None) -> Cluster | None:
    """The living cluster whose scheduler has this address; None if no notebook of the state folder started it, or it has ended.

    Raises:
        PoolMissing: A gateway gives no answer.
    """
    name = urlsplit(address).path.strip("/")
    for _, known in _known(folder):
        if known["cluster"] == name:
            with _gateway(known["gateway"]) as gateway:
                report = _report(gateway, name)
                if report is not None and report.scheduler_address == address:
                    return _seen(known["gateway"], name, known["allocation"], gateway.get_cluster(name))  # with its key
    return None


def started(folder: Path | None = None) -> list[Cluster]:
    """Those that notebooks of the state folder have started, as they stand now.

    Raises:
        PoolMissing: A gateway gives no answer.
    """
    clusters = list[Cluster]()
    for _, known in _known(folder):
        with _gateway(known["gateway"]) as gateway:
            report = _report(gateway, known["cluster"])
            clusters.append(_seen(known["gateway"], known["cluster"], known["allocation"], report))
    return clusters


def stop(folder: Path | None = None) -> list[Cluster]:
    """End all of these, with what they run; returns those that lived.

    Raises:
        PoolMissing: A gateway gives no answer.
    """
    ended = list[Cluster]()
    for file, known in _known(folder):
        with _gateway(known["gateway"]) as gateway, _locked(file.with_suffix(".lock")):
            report = _report(gateway, known["cluster"])
            if report is not None:
                gateway.stop_cluster(report.name)
                ended.append(_seen(known["gateway"], report.name, known["allocation"], report))
            file.unlink(missing_ok=True)
    return ended


def _report(gateway: Any, name: str | None) -> Any:
    """What the gateway says of a living cluster of ours; None where there is none of that name."""
    return next((each for each in gateway.list_clusters() if each.name == name), None)


def _seen(gateway: str, name: str, allocation: str, report: Any) -> Cluster:
    if report is None:
        return Cluster(gateway, name, allocation, "gone")
    status = report.status.name.lower()
    return Cluster(gateway, name, allocation, status, report.scheduler_address or "", report.security, report.dashboard_link)


def _file(folder: Path | None, gateway: str, allocation: str, options: Mapping[str, Any]) -> Path:
    about = json.dumps([gateway, allocation, options], sort_keys=True, default=str)
    return private_dir(state_dir(folder)) / f"{_FILES}{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"


def _known(folder: Path | None) -> Iterator[tuple[Path, dict[str, str]]]:
    for file in sorted(state_dir(folder).glob(f"{_FILES}*.json")):
        known = read_json(file) or {}
        if all(type(known.get(name)) is str for name in ("gateway", "cluster", "allocation")):
            yield file, known


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Alone with a cluster's file: two notebooks that begin at once start one cluster."""
    until = time.monotonic() + 2 * _ASK_S
    while (lock := try_lock(file)) is None:
        if time.monotonic() > until:
            raise PoolMissing("a cluster of a dask-gateway", f"another notebook holds {file}", "try again")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _gateway(address: str) -> Iterator[Any]:
    """A client of the gateway, whose errors are ours."""
    asked = f"the dask-gateway of {address}"
    try:
        import aiohttp  # noqa: PLC0415 - an extra, as what follows
        import dask_gateway  # noqa: PLC0415
    except ImportError:
        raise PoolMissing(asked, "dask-gateway is not installed", "pip install 'jupyter-gpufair[gateway]'") from None
    scheme, _, rest = address.partition(":")
    url = f"{_SCHEMES.get(scheme, scheme)}:{rest}" if rest else None  # without one it is Dask's own
    if url is not None and not urlsplit(url).hostname:
        raise PoolMissing(asked, "there is no host in it", "write it as gateway://host, or gateway+http://host:8000")
    try:
        gateway = dask_gateway.Gateway(url)
        asked = f"the dask-gateway at {gateway.address}"
        try:
            yield gateway
        finally:
            gateway.close()
            gateway._asynchronous = True  # noqa: SLF001 - else its __del__ closes it again, and complains that it is closed
    except aiohttp.ClientResponseError as err:
        remedy = "see gateway.auth in Dask's configuration" if err.status in {401, 403} else "ask who runs it"
        raise PoolMissing(asked, f"it answers {err.status} {err.message}", remedy) from None
    except (ValueError, dask_gateway.GatewayClusterError, dask_gateway.GatewayServerError) as err:
        raise PoolMissing(asked, str(err).rstrip("."), "see options of gpufair.cpu.connect, and gateway in Dask's configuration") from None
    except (OSError, aiohttp.ClientError) as err:  # a time-out is an OSError
        raise PoolMissing(asked, f"it gives no answer ({type(err).__name__})", "check the address") from None


def _running(gateway: Any, name: str, wait_s: float) -> Any:
    """The report on a cluster once it runs."""
    asked = f"the cluster {name} of {gateway.address}"
    begun, told = time.monotonic(), False
    while (report := gateway.get_cluster(name)).status.name != "RUNNING":
        waited = time.monotonic() - begun
        if report.status.name != "PENDING":
            raise PoolMissing(asked, f"it has {report.status.name.lower()} at its start", "ask who runs the gateway for its log, or try again")
        if waited > wait_s:
            raise PoolMissing(asked, f"it did not start in {wait_s:.0f} s", "connect again to wait on (workers_wait_s allows more time)")
        if waited > _TELL_AFTER_S and not told:
            print(f"{asked} is starting; an interrupt ends the waiting, not the start")  # noqa: T201 - under the cell
            told = True
        time.sleep(_POLL_S)
    return report


def _first_worker(gateway: str, report: Any, wait_s: float) -> None:
    """Wait for one: without, nobody could tell whether the environment of the workers fits."""
    asked = f"the cluster {report.name} of {gateway}"
    try:
        with distributed.Client(report.scheduler_address, security=report.security, timeout=_ASK_S, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(1, timeout=wait_s)
    except OSError:
        raise PoolMissing(
            asked, f"no worker came in {wait_s:.0f} s", "ask who runs the gateway for its log (workers_wait_s allows more time)"
        ) from None
