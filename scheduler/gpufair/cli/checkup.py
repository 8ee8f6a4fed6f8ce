"""What `gpufair doctor` looks at: each check says what is true, and what to do where that is not well."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpufair.cli.node_findings import MOST_SKEW_S, PACKAGE, Finding, nodes_found
from gpufair.cli.words import plural
from gpufair.core import COMPILED
from gpufair.core.errors import GpufairError

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.service.settings.config import Config

LEAST_FREE_BYTES: Final = 1 << 30  # where checkpoints go
EXTENSION: Final = "@gpufair/labextension"


@dataclass(slots=True)
class Patient:
    """What is looked at. ``config`` and ``service`` are None where they cannot be had."""

    folder: Path
    config_file: Path | None = None
    config: Config | None = None
    service: Client | None = None


def examine(patient: Patient) -> Iterator[Finding]:
    """All findings. A check that breaks is a finding, too: the others go on."""
    for check in _CHECKS:
        try:
            yield from check(patient)
        except (GpufairError, OSError) as err:
            yield Finding(check.__name__.strip("_").replace("_", " "), "problem", str(err))


def versions(_looked_at: object) -> Iterator[Finding]:
    """Which version of what this is."""
    core = "compiled" if COMPILED else "plain Python"
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("version", "ok", f"{PACKAGE} {metadata.version(PACKAGE)}, Python {python}, {core} core")


def _configuration(patient: Patient) -> Iterator[Finding]:
    from gpufair.service.settings.config import find_config, load_config  # noqa: PLC0415  # heavy; `--help` need not pay

    try:
        found = find_config(patient.config_file)
        patient.config = load_config(found)
    except GpufairError as err:
        yield Finding("configuration", "problem", str(err), "mend that line; a service that runs goes on with what it read")
        return
    where = str(found) if found else "none found: the defaults of a laptop"
    config = patient.config
    holds = f"{plural(len(config.nodes), 'node')}, {plural(len(config.budgets.leaves), 'allocation')}"
    yield Finding("configuration", "ok", f"{where} ({holds})")


def _state_folder(patient: Patient) -> Iterator[Finding]:
    folder = patient.folder
    if not folder.exists():
        yield Finding("state folder", "note", f"{folder} is not there yet", "the first start of the service makes it")
        return
    about = folder.stat()
    if about.st_uid != os.geteuid():
        yield Finding("state folder", "problem", f"{folder} belongs to user id {about.st_uid}", "name another --state-dir")
    elif stat.S_IMODE(about.st_mode) & 0o066:
        yield Finding("state folder", "problem", f"others may read {folder}, which holds tokens", f"chmod 700 {folder}")
    else:
        yield Finding("state folder", "ok", str(folder))
    yield from _room(folder, "state folder")


def _room(folder: Path, about: str) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    said = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < LEAST_FREE_BYTES:
        yield Finding(about, "warning", said, "make room: what cannot be saved is lost at a preemption")
    else:
        yield Finding(about, "ok", said)


def _journal(patient: Patient) -> Iterator[Finding]:
    from gpufair.service.storage.database import JOURNAL_FILE  # noqa: PLC0415  # as above

    path = patient.folder / JOURNAL_FILE
    if (patient.config and patient.config.store.url) or not path.exists():
        return  # a database is asked for by the service: see its readiness
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as database:
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
            (entries,) = database.execute("SELECT count(*) FROM journal").fetchone()
    except sqlite3.Error as err:
        yield Finding("journal", "problem", f"{path} cannot be read: {err}", "restore it from a backup")
        return
    if said != "ok":
        yield Finding("journal", "problem", f"{path} is damaged: {said}", "restore it from a backup")
    else:
        yield Finding("journal", "ok", f"{entries:,} entries in {path}")


def _checkpoints(patient: Patient) -> Iterator[Finding]:
    url = patient.config.checkpoint_url if patient.config else ""
    if url and "://" not in url:
        yield from _room(Path(url), "checkpoints")
    elif url:
        yield Finding("checkpoints", "note", f"kept at {url}; not looked into", "`gpufair checkpoints verify` reads them")


def _service(patient: Patient) -> Iterator[Finding]:
    from gpufair.client.health import readiness  # noqa: PLC0415  # as above

    service = patient.service
    if service is None:
        return
    try:
        asked = time.time()
        status = service.status()
        answered = time.time()
    except GpufairError as err:
        yield Finding("service", "problem", str(err))
        patient.service = None
        return
    mine = metadata.version(PACKAGE)
    yield Finding("service", "ok", f"{status.mode}, at {service.endpoint().url}, takes you for {status.user!r}")
    if status.version != mine:
        said = f"the service is version {status.version}, this command {mine}"
        yield Finding("service", "warning", said, "restart the service after an update; sessions go on meanwhile")
    # Half of what the question took may have passed on either side.
    skew = max(status.now_s - answered, asked - status.now_s, 0.0)
    if skew > MOST_SKEW_S:
        yield Finding("clock", "warning", f"this machine and the service differ by {skew:.0f} s", "let NTP set both")
    else:
        yield Finding("clock", "ok", "this machine and the service agree")
    if problem := readiness(service.endpoint()):
        yield Finding("service", "problem", f"it takes nothing in: {problem}")


def _clusters(patient: Patient) -> Iterator[Finding]:
    pools = [(pool.name, pool.kubernetes) for pool in patient.config.pools] if patient.config else []
    for name, options in pools:
        if options is None:
            continue
        from gpufair.service.backends.kubernetes.checkup import findings  # noqa: PLC0415  # heavy; few have a cluster

        for found in asyncio.run(findings(options)):
            yield Finding(f"pool {name}", found.level, found.said, found.advice)


def _nodes(patient: Patient) -> Iterator[Finding]:
    if patient.service is None:
        return
    pools = patient.config.pools if patient.config else ()
    yield from nodes_found(patient.service.nodes(), [pool.name for pool in pools if pool.kubernetes is not None])


def _gpus(_patient: Patient) -> Iterator[Finding]:
    from gpufair.node.gpus import inventory  # noqa: PLC0415  # as above

    found = inventory()
    if found:
        kinds = ", ".join(sorted({gpu.type for gpu in found}))
        yield Finding("GPUs here", "ok", f"NVML finds {plural(len(found), 'GPU')} on this machine: {kinds}")
    else:
        yield Finding("GPUs here", "note", "NVML finds none on this machine; virtual ones are used if the configuration says so")


def _front_end(_patient: Patient) -> Iterator[Finding]:
    for share in (Path(sys.prefix) / "share", Path.home() / ".local" / "share", Path("/usr/local/share")):
        if (share / "jupyter" / "labextensions" / EXTENSION / "package.json").is_file():
            yield Finding("front end", "ok", f"JupyterLab finds the panels in {share}")
            return
    yield Finding(
        "front end", "note", "JupyterLab here has no panels of ours", "install jupyter-gpufair where Jupyter runs"
    )


_CHECKS: Final[tuple[Callable[[Patient], Iterator[Finding]], ...]] = (
    versions,
    _configuration,
    _state_folder,
    _journal,
    _checkpoints,
    _service,
    _clusters,
    _nodes,
    _gpus,
    _front_end,
)
