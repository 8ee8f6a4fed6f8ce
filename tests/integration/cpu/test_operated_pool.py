"""A cluster of the Dask operator, as pods of its Kubernetes reach it."""

from __future__ import annotations

import socket
from typing import Any

import distributed
import pytest

from gpufair import cpu


def test_the_scheduler_behind_the_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real scheduler and worker; the name is resolved as the DNS of Kubernetes does."""
    options: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **options) as cluster:
        host, _, port = cluster.scheduler_address.removeprefix("tcp://").rpartition(":")
        resolve = socket.getaddrinfo

        def known(name: Any, *more: Any, **named: Any) -> Any:
            return resolve(host if name == "pool-scheduler.team-a.svc" else name, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", known)
        try:
            assert cpu.connect(f"operator://team-a/pool:{port}").submit(len, "abc").result() == 3
        finally:
            cpu.close()
