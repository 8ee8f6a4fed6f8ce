"""The dashboard of a pool, at a socket that only its owner can open.

Dask serves its pages to everybody who reaches a port, and each account of a machine reaches those of loopback.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tornado.netutil import bind_unix_socket

from gpufair.cpu.errors import PoolMissing


def require() -> None:
    """Raises: PoolMissing: What draws it is not installed."""
    if find_spec("bokeh") is None:
        raise PoolMissing("the dashboard of a CPU pool", "bokeh is not installed", "pip install 'jupyter-gpufair[dashboard]'")


def new_socket() -> Path:
    """A name for one, in a new folder of its owner's: that of the state folder may be longer than a socket's may be."""
    return Path(tempfile.mkdtemp(prefix="gpufair-cpu-")) / "http"


def move(cluster: Any, path: Path | None) -> None:
    """Have the pages of a local cluster's scheduler at ``path``, or nowhere, instead of at a port."""

    async def on_its_loop() -> None:
        server = cluster.scheduler.http_server
        server.stop()
        if path is not None:
            server.add_socket(bind_unix_socket(str(path), mode=0o600))

    cluster.sync(on_its_loop)
