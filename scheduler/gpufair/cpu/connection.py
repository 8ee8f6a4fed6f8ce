"""Which pool this process uses, and what a notebook calls: ``connect``, ``submit``, ``map``, ``gather``, ``close``."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dask.config
import distributed
from distributed.config import defaults as dask_defaults

from gpufair.core.errors import GpufairError
from gpufair.cpu import gateway, kept, local, operated, resident, served, worker
from gpufair.cpu.errors import PoolMissing
from gpufair.cpu.pool import WARN_BYTES, WORKERS_WAIT_S, Pool, compare_with, tasks_in
from gpufair.cpu.task import Kind, Task, Where

_CHECK = "check the address, or leave it out for this machine's cores"
_OPERATED = "see with `kubectl get daskclusters -A` whether it is there; its name is known only within its Kubernetes"
_CONNECT_S = 10.0
_NOTICED_S = 2.0  # in which the service sees that its pool has just died

_current: list[Pool] = []
_others: list[Pool] = []  # that have tasks of a session that was restored, while another one is in use


def connect(
    address: str | None = None,
    *,
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    security: Any = None,
    warn_bytes: int = WARN_BYTES,
    by_reference: Sequence[str] = (),
    workers_wait_s: float = WORKERS_WAIT_S,
) -> Pool:
    """Use the pool at ``address`` from now on; by default ``$GPUFAIR_CPU_POOL``, or else one on this machine.

    That is the one of ``gpufair cpu start``, where it runs, or else that of the scheduler service; where there is neither,
    or ``workers`` is given, one that ends with this process.

    Args:
        address: Of a Dask scheduler, as ``tcp://host:8786``, of a dask-gateway, as ``gateway://host``, or of a cluster of the
            Dask operator for Kubernetes, as ``operator://namespace/name``. Whoever runs it runs your code: give no stranger's.
        workers: How many processes of its own on this machine, where there is no address; by default one per core. At a
            gateway, how many at most.
        options: For the cluster at a gateway: what that one offers, as an image.
        security: A ``distributed.Security``, for schedulers that ask for certificates.
        warn_bytes: A call that sends more than this to the pool warns.
        by_reference: Modules beside the notebook that the workers have installed, and that need not travel.
        workers_wait_s: Seconds, > 0, until waiting for a task ends with an error in a pool that lost all its workers.

    Raises:
        ValueError: ``workers_wait_s`` or ``workers`` is not positive.
        PoolMissing: Nothing answers there.
        WrongEnvironment: The workers run another minor version of Python, or of Dask.
    """
    if not workers_wait_s > 0:
        raise ValueError(f"workers_wait_s is {workers_wait_s}; give seconds, more than 0")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; give 1 or more, or leave it out")
    asked = address or os.environ.get(served.ADDRESS)
    close()
    _keep_settings()
    settings = warn_bytes, by_reference, workers_wait_s
    pool: Pool | None = None
    if asked and gateway.meant(asked):
        pool = _gateway(gateway.found(asked, workers=workers, options=options, wait_s=workers_wait_s), *settings)
    elif asked:
        remedy = _CHECK
        if operated.meant(asked):
            asked, remedy = operated.scheduler_of(asked), _OPERATED
        pool = _opened("address", asked, security, remedy, *settings)
        pool.secured = security is not None
    elif workers is None and (living := resident.found()) is not None:
        pool = _machine(living, *settings)
    elif workers is None:
        pool = _of_the_service(*settings)
    if pool is None:
        security = local.new_key()
        pool = _opened("own", local.cluster(workers, security), security, "", *settings)
    _current.append(pool)
    return pool


def _of_the_service(*settings: Any) -> Pool | None:
    """None where there is none, or none that this notebook can use: nobody has asked for this very one."""
    try:
        found = served.ask()
        if found is not None and gateway.meant(found.address):
            return _gateway(gateway.found(found.address, wait_s=settings[2]), *settings)
        try:
            return None if found is None else _served(found, *settings)
        except PoolMissing:
            time.sleep(_NOTICED_S)
            found = served.ask()
            return None if found is None else _served(found, *settings)
    except Exception as err:  # noqa: BLE001 - another release of Dask there may fail in any way
        told = err if isinstance(err, GpufairError) else f"{type(err).__name__}: {err}"
        warnings.warn(f"workers of this notebook's own are used, not the scheduler service's CPU pool: {told}", stacklevel=3)
        return None


def _served(found: served.Served, *settings: Any) -> Pool:
    pool = _opened("service", found.address, found.security(), "ask its operator", *settings)
    try:
        served.introduce(pool.client, found.leaf, found.user)
        if not pool.had_workers:  # they start when there is something to do, from where the scheduler was started
            compare_with(pool.client.run_on_scheduler(worker.versions))
    except BaseException:
        pool.close()
        raise
    return pool


def _machine(living: resident.Resident, *settings: Any) -> Pool:
    pool = _opened("machine", living.address, living.security(), "run `gpufair cpu stop` and `gpufair cpu start`", *settings)
    if living.dashboard:
        pool.dashboard = f"{os.environ.get('JUPYTERHUB_SERVICE_PREFIX', '/')}gpufair/cpu-pool/dashboard/"
    return pool


def _gateway(cluster: gateway.Cluster, *settings: Any) -> Pool:
    pool = _opened("gateway", cluster.address, cluster.security, "run `gpufair cpu stop --gateway` and connect again", *settings)
    pool.dashboard = cluster.dashboard
    return pool


def _opened(kind: Kind, target: Any, security: Any, remedy: str, *settings: Any) -> Pool:
    """Connect to the address, or the cluster of our own, that ``target`` is."""
    cluster = target if kind == "own" else None
    try:
        client = distributed.Client(target, security=security, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except OSError as err:
        raise PoolMissing(f"the CPU pool at {target}", f"no Dask scheduler answers ({type(err).__name__})", remedy) from None
    except ValueError as err:
        raise PoolMissing(f"the CPU pool at {target}", f"that is no address ({err})", "write it like tls://host:8786") from None
    except TypeError:  # what Dask says of TLS without certificates
        raise PoolMissing(f"the CPU pool at {target}", "TLS needs certificates", "give security=distributed.Security(...)") from None
    try:
        return Pool(client, cluster, kind, *settings)
    except BaseException:
        client.close()  # type: ignore[no-untyped-call]
        if cluster is not None:
            cluster.close()
        raise


def reach(where: Where, what: str) -> Pool:
    """The pool of a task that came with a checkpoint.

    Args:
        where: As the task says.
        what: The task, as an error calls it.

    Raises:
        ResultGone: It is not there; says why.
    """
    if (known := next((pool for pool in connected() if pool.where.scheduler == where.scheduler), None)) is not None:
        return known
    if where.kind == "own":
        raise kept.ResultGone(what, "its pool was a part of the kernel that this session had before, and ended with it")
    _keep_settings()
    if where.kind == "machine":
        living = resident.found()
        if living is None or living.address != where.address:
            here = platform.node()
            there = "this machine" if where.machine == here else f"the machine {where.machine}, and this kernel is on {here}"
            raise kept.ResultGone(what, f"the pool of `gpufair cpu start` that had it was on {there}, and is not to be found")
        pool = _machine(living)
    elif where.kind == "gateway":
        if (cluster := gateway.again(where.address)) is None:
            raise kept.ResultGone(what, f"the cluster of a dask-gateway that had it, {where.address}, has ended")
        pool = _gateway(cluster)
    elif where.kind == "service":
        try:
            found = served.ask(start=False)
        except GpufairError as err:
            raise kept.ResultGone(what, f"the scheduler service's pool cannot be reached: {err}") from None
        if found is None or found.address != where.address:
            raise kept.ResultGone(what, "the scheduler service's pool was started anew, or is on another machine")
        pool = _served(found)
    else:
        try:
            pool = _opened("address", where.address, None, _CHECK)
        except PoolMissing as err:
            remedy = f"if it is there, call gpufair.cpu.connect({where.address!r}, security=...), else run the cell again that asks for it"
            raise kept.ResultGone(what, f"{err.asked} cannot be reached: {err.why}", remedy) from None
    if pool.where.scheduler != where.scheduler:
        pool.close()
        raise kept.ResultGone(what, f"the pool at {where.address} was started anew")
    (_others if _current else _current).append(pool)
    return pool


def connected() -> list[Pool]:
    """The pools that this process uses."""
    return [*_current, *_others]


def _keep_settings() -> None:
    """Put back Dask's defaults where they are gone.

    Whoever sets one within ``with dask.config.set(…)``, and meets us there before ``distributed`` was ever imported, takes
    all of its settings away again on leaving.
    """
    if dask.config.get("distributed.comm", None) is None:
        dask.config.update_defaults(dask_defaults)


def close() -> None:
    """Leave the current pool, if there is one, and those of tasks that were restored."""
    for pools in (_current, _others):
        while pools:
            pools.pop().close()


def current() -> Pool:
    """The pool in use; the first call connects, and so does one after the service's pool has died."""
    if not _current:
        return connect()
    now = _current[-1]
    if now.where.kind == "service" and now.client.status != "running":
        return connect(warn_bytes=now.warn_bytes, by_reference=now.by_reference, workers_wait_s=now.workers_wait_s)
    return now


def submit(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Task:
    """See ``Pool.submit``."""
    return current().submit(function, *arguments, **keywords)


def map(function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Task]:  # noqa: A001 - as in concurrent.futures
    """See ``Pool.map``."""
    return current().map(function, *iterables)


def gather(tasks: Task | Iterable[Task]) -> Any:
    """See ``Pool.gather``."""
    if isinstance(tasks, Task):
        return tasks.result()
    several = tasks_in(tasks)
    return several[0].pool.gather(several) if several else []
