"""Clusters of the Dask operator, by their names."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gpufair.cpu import operated
from gpufair.cpu.errors import PoolMissing


@pytest.mark.parametrize(
    ("address", "scheduler"),
    [
        ("operator://team-a/pool", "tcp://pool-scheduler.team-a.svc:8786"),
        ("operator://default/x:9000", "tcp://x-scheduler.default.svc:9000"),
    ],
)
def test_a_cluster_is_reached_by_the_name_of_its_scheduler(address: str, scheduler: str) -> None:
    assert operated.meant(address)
    assert operated.scheduler_of(address) == scheduler


@pytest.mark.parametrize(
    "address",
    ["operator://", "operator://pool", "operator://a/b/c", "operator://A/b", "operator://-a/b", f"operator://a/{'b' * 64}",
     "operator://a/b:0", "operator://a/b.evil.example/", "operator:a/b", "operator://user@a/b"],
)  # fmt: skip
def test_other_ways_of_writing_are_refused(address: str) -> None:
    """Nothing but a name of Kubernetes becomes part of a host's name."""
    with pytest.raises(PoolMissing, match="write operator://NAMESPACE/NAME"):
        operated.scheduler_of(address)


def test_other_addresses_are_not_meant() -> None:
    assert not operated.meant("tcp://operator:8786")
    assert not operated.meant("gateway://host")


def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside its Kubernetes nobody knows the name."""
    from gpufair import cpu

    def unknown(host: Any, *more: Any, **named: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr("gpufair.cpu.connection._CONNECT_S", 1.0)
    with pytest.raises(PoolMissing, match="kubectl get daskclusters"):
        cpu.connect("operator://team-a/pool")
