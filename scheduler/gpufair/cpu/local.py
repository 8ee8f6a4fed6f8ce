"""Dask on this machine, which only holders of its key can talk to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed

from gpufair.cpu import dashboard
from gpufair.cpu.errors import PoolMissing


def new_key() -> Any:
    """A ``distributed.Security`` with a key of its own: loopback is open to every account, and a worker runs what it is sent.

    Raises:
        PoolMissing: What makes keys is not installed.
    """
    try:
        return distributed.Security.temporary()  # type: ignore[no-untyped-call]
    except ImportError:
        raise PoolMissing(
            "a CPU pool on this machine", "cryptography is not installed", "pip install cryptography, or give the address of a pool"
        ) from None


def cluster(
    workers: int | None,
    security: Any,
    memory_bytes: int | None = None,
    plugins: Sequence[Any] = (),
    pages: Path | None = None,
) -> Any:
    """A scheduler in this process and ``workers`` processes (None: one per core), each with ``memory_bytes`` at most.

    ``plugins`` are the scheduler's. Its dashboard is at the socket ``pages``; there is none without.
    """
    made = distributed.LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=workers, threads_per_worker=1, security=security, host="tls://127.0.0.1",
        memory_limit="auto" if memory_bytes is None else memory_bytes,
        # Not port 8787, which may be taken; it goes away at once.
        scheduler_kwargs={"dashboard": pages is not None, "dashboard_address": "127.0.0.1:0", "plugins": plugins},
    )
    dashboard.move(made, pages)
    return made
