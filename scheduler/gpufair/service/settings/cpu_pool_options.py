"""``[cpu_pool]``: the CPU pool that the service keeps for its users, or where another one is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpufair.core.units import MINUTE, Millis
from gpufair.cpu import operated
from gpufair.cpu.errors import PoolMissing
from gpufair.service.settings.policy_options import OFF, YEAR
from gpufair.service.settings.tables import Table, shown

MOST_WORKERS = 1024  # of one machine
LEAST_MEMORY = 64 << 20  # Python and Dask need so much
MOST_TASKS = 1_000_000
_OWN = ("workers", "memory", "tasks_per_user", "window")  # of a pool that the service keeps
_GATEWAYS = ("gateway", "gateway+https", "gateway+http")  # as in ``gpufair.cpu.gateway``, which imports Dask
_TLS = ("ca", "certificate", "key")


@dataclass(frozen=True, slots=True)
class CpuPoolOptions:
    """``workers`` None: one per core; ``memory`` (bytes, of each) None: a core's share; ``tasks_per_user`` 0: any number at once.

    ``window`` None: the one of the policy. With an ``address`` nothing is started; ``tls`` are its files then (CA,
    certificate, key), or nothing.
    """

    enabled: bool = True
    workers: int | None = None
    memory: int | None = None
    tasks_per_user: int = 0
    window: Millis | None = None
    address: str = ""
    tls: tuple[Path, ...] = ()


def read_cpu_pool(table: Table, folder: Path) -> CpuPoolOptions:
    """The options; paths count from ``folder``.

    Raises:
        ConfigError: One is not valid.
    """
    memory = table.size("memory", 0) if table.has("memory") else None
    if memory is not None and memory < LEAST_MEMORY:
        table.fail(f"memory = {shown(table.raw('memory'))} is less than Python and Dask need (64MiB)", "memory")
    tasks = 0 if table.raw("tasks_per_user") == OFF else table.integer("tasks_per_user", 0, 0, MOST_TASKS)
    options = CpuPoolOptions(
        enabled=table.boolean("enabled", default=True),
        workers=table.integer("workers", 1, 1, MOST_WORKERS) if table.has("workers") else None,
        memory=memory,
        tasks_per_user=tasks,
        window=table.duration("window", MINUTE, MINUTE, YEAR) if table.has("window") else None,
        address=_address(table),
        tls=_tls(table, folder),
    )
    _check_address(table, options)
    table.finish()
    return options


def _address(table: Table) -> str:
    """Of a scheduler or a gateway; a cluster of the Dask operator is its scheduler's."""
    given = table.text("address", "", longest=512)
    try:
        return operated.scheduler_of(given) if operated.meant(given) else given
    except PoolMissing as err:
        table.fail(f"address = {shown(given)}: {err.why}; {err.remedy}", "address")


def _tls(table: Table, folder: Path) -> tuple[Path, ...]:
    given = [name for name in _TLS if table.has(name)]
    if not given:
        return ()
    if missing := [name for name in _TLS if name not in given]:
        table.fail(f"{given[0]} needs {' and '.join(missing)} beside it; name all three files", given[0])
    paths = []
    for name in _TLS:
        path = (folder / Path(table.text(name, "", longest=4096)).expanduser()).absolute()
        if not path.is_file():
            table.fail(f"{name} names {path}, which is not there; correct the path (it counts from this file)", name)
        paths.append(path)
    return tuple(paths)


def _check_address(table: Table, options: CpuPoolOptions) -> None:
    if not options.address:
        if options.tls:
            table.fail('ca, certificate and key belong to an address; add address = "tls://host:8786"', "ca")
        return
    scheme = options.address.partition(":")[0]
    dask = scheme in {"tls", "tcp"} and options.address.rpartition(":")[2].isdigit()
    if not dask and scheme not in _GATEWAYS:
        table.fail(
            f'address = {shown(options.address)}: write a Dask scheduler\'s like "tls://host:8786", '
            'a dask-gateway\'s like "gateway://host/path", or "operator://namespace/name"', "address",
        )  # fmt: skip
    if (scheme == "tls") != bool(options.tls):
        table.fail(
            "a tls:// address needs ca, certificate and key" if scheme == "tls" else "ca, certificate and key need a tls:// address",
            "address",
        )
    for name in _OWN:
        if table.has(name):
            table.fail(f"{name} is for a pool that the service starts; the one at {options.address} has rules of its own", name)
