"""Pools: clusters, each with a ledger of its own. What the service answers, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from gpufair.client.calls import API, Call
from gpufair.client.reading import read, read_list


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool. ``nodes`` are there, ``cordoned`` ones included, ``lost`` ones not; ``free_gpus`` are on nodes that take work."""

    name: str
    backend: str = ""
    nodes: int = 0
    cordoned: int = 0
    lost: int = 0
    gpus: int = 0
    free_gpus: int = 0
    held_gpus: int = 0
    queued_gpus: int = 0
    gpu_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools, the default one first."""

    pools: tuple[PoolView, ...] = ()


def pools() -> Call[tuple[PoolView, ...]]:
    """All pools, the default one first."""
    return Call("GET", f"{API}/pools", lambda data: read_list(PoolView, data, "pools"))


def cordon(pool: str) -> Call[PoolView]:
    """Let nothing new start on any node of a pool."""
    return _changed(pool, "cordon")


def uncordon(pool: str) -> Call[PoolView]:
    """Let all nodes of a pool take workloads again."""
    return _changed(pool, "uncordon")


def drain(pool: str, *, within_s: float | None = None, force: bool = False) -> Call[PoolView]:
    """Empty a whole pool, within ``within_s`` seconds if given; ``force`` cuts protections that last longer."""
    body: dict[str, object] = {"force": force} | ({} if within_s is None else {"within_s": within_s})
    return _changed(pool, "drain", body)


def _changed(pool: str, verb: str, body: dict[str, object] | None = None) -> Call[PoolView]:
    path = f"{API}/pools/{quote(pool, safe='')}/{verb}"
    return Call("POST", path, lambda data: read(PoolView, data), json=body, repeatable=False)
