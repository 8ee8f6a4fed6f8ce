"""A row for each GPU: on which of a node's GPUs each stay is drawn."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from gpufair.service.storage.stays import Stay


def lanes(gpus: int, devices: Sequence[str], stays: Sequence[Stay]) -> tuple[tuple[int, ...], ...]:
    """For each of one node's stays the rows of its GPUs, from 0.

    A stay is where its node said that it was. One of which that is not known yet, or that was on a GPU which the node no
    longer has, is on rows that nobody else has meanwhile.

    Args:
        gpus: How many the node has.
        devices: Their ids, in order, where known.
        stays: Of one node, by grant.
    """
    number = {device: row for row, device in enumerate(devices)}
    busy: list[list[tuple[int, int]]] = [[] for _ in range(max(gpus, *(stay.gpus for stay in stays), 0))]
    found: list[tuple[int, ...]] = [()] * len(stays)
    for at, stay in enumerate(stays):
        rows = tuple(sorted(number[device] for device in stay.devices if number.get(device, gpus) < gpus))
        if len(rows) == stay.gpus:
            found[at] = _take(busy, rows, stay)
    for at, stay in enumerate(stays):
        if not found[at]:
            order = sorted(range(len(busy)), key=lambda row: (_overlaps(busy[row], stay), row))
            found[at] = _take(busy, tuple(sorted(order[: stay.gpus])), stay)
    return tuple(found)


def _take(busy: list[list[tuple[int, int]]], rows: tuple[int, ...], stay: Stay) -> tuple[int, ...]:
    for row in rows:
        insort(busy[row], (stay.granted_ms, stay.freed_ms))
    return rows


def _overlaps(busy: list[tuple[int, int]], stay: Stay) -> bool:
    """Whether somebody is there meanwhile. Who is there comes one after the other, so the latest before its end decides."""
    low, high = 0, len(busy)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if busy[middle][0] < stay.freed_ms else (low, middle)
    return low > 0 and busy[low - 1][1] > stay.granted_ms
