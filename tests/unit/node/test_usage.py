"""Utilization of a workload's GPUs: means over a minute, and silence about what is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from gpufair.node.usage import Usage, measure


async def test_means_by_device_and_each_sample_once() -> None:
    """A minute is several samples, since one covers a second at most."""
    given = iter([{"GPU-a": 0.0, "GPU-b": 1.0}, {"GPU-a": 1.0, "GPU-b": 1.0}, {"GPU-a": 0.5}])
    usage = Usage(lambda devices: next(given))
    for _ in range(3):
        await usage.sample(["GPU-a", "GPU-b"])
    assert usage.report(["GPU-b", "GPU-a"]) == {"span_s": 60.0, "gpus": [["GPU-b", 1.0], ["GPU-a", 0.5]]}
    assert usage.report(["GPU-a", "GPU-b"]) is None


async def test_virtual_and_unknown_devices_report_nothing() -> None:
    """Absent is unknown, never 0; nobody is even asked about virtual GPUs."""
    asked: list[list[str]] = []

    def read(devices: Iterable[str]) -> dict[str, float]:
        asked.append(list(devices))
        return {}

    usage = Usage(read)
    await usage.sample(["virtual-0"])
    await usage.sample([])
    await usage.sample(["virtual-0", "GPU-a"])
    assert asked == [["GPU-a"]]
    assert usage.report(["virtual-0", "GPU-a"]) is None


async def test_what_is_left_of_a_gone_workload_is_not_the_next_ones() -> None:
    """The next one on the GPU begins with an empty page."""
    usage = Usage(lambda devices: dict.fromkeys(devices, 1.0))
    await usage.sample(["GPU-a"])
    usage.forget()
    assert usage.report(["GPU-a"]) is None


async def test_each_workload_is_reported_once_for_several_samples() -> None:
    """By its own devices; one without real GPUs is not mentioned."""
    told: list[tuple[tuple[str, int], dict[str, Any]]] = []
    done = asyncio.Event()

    def report(key: tuple[str, int], body: dict[str, Any]) -> None:
        told.append((key, body))
        if len(told) == 2:
            done.set()

    in_use = {("w1", 1): ("GPU-a",), ("w2", 3): ("GPU-b",), ("w3", 1): ("virtual-0",)}
    values = {"GPU-a": 0.25, "GPU-b": 0.75}
    task = asyncio.create_task(measure(lambda: in_use, report, Usage(lambda devices: values), pause_s=0.001))
    await asyncio.wait_for(done.wait(), 10)
    task.cancel()
    assert [(key, body["gpus"]) for key, body in told] == [
        (("w1", 1), [["GPU-a", 0.25]]),
        (("w2", 3), [["GPU-b", 0.75]]),
    ]
