"""How busy the GPUs of workloads were: samples of NVML, as means over a minute. Unknown is said by saying nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gpufair.node.gpus import is_virtual, utilization

SAMPLE_S = 10.0  # one sample covers at most a second, so a minute needs several
SAMPLES = 6  # of a report
Key = tuple[str, int]  # workload, incarnation


class Usage:
    """Samples since the last report.

    Args:
        read: Asks for the utilization of GPUs, from 0 to 1; may block.
    """

    def __init__(self, read: Callable[[Iterable[str]], dict[str, float]] = utilization) -> None:
        self._read = read
        self._seen: dict[str, list[float]] = {}

    async def sample(self, devices: Collection[str]) -> None:
        """Take one sample of each device; virtual ones have none."""
        real = [device for device in devices if not is_virtual(device)]
        if not real:
            return
        for device, value in (await asyncio.to_thread(self._read, real)).items():
            self._seen.setdefault(device, []).append(value)

    def report(self, devices: Iterable[str]) -> dict[str, Any] | None:
        """What to report about a workload on these devices; None if nothing is known. Its samples are forgotten."""
        seen = [(device, values) for device in devices if (values := self._seen.pop(device, None))]
        if not seen:
            return None
        return {"span_s": SAMPLE_S * SAMPLES, "gpus": [[device, sum(many) / len(many)] for device, many in seen]}

    def forget(self) -> None:
        """Begin anew: what is left belongs to workloads that have gone."""
        self._seen.clear()


async def measure(
    in_use: Callable[[], Mapping[Key, tuple[str, ...]]],
    report: Callable[[Key, dict[str, Any]], None],
    usage: Usage | None = None,
    pause_s: float = SAMPLE_S,
) -> None:
    """Sample what is in use, and report about each workload once for every ``SAMPLES`` samples, for ever.

    Args:
        in_use: The devices of each workload that runs here now.
        report: Takes the body of a report about a workload.
        usage: Where samples are kept and come from.
        pause_s: Between two samples.
    """
    usage = usage or Usage()
    while True:
        for _ in range(SAMPLES):
            await asyncio.sleep(pause_s)
            await usage.sample([device for devices in in_use().values() for device in devices])
        for workload, devices in in_use().items():
            if (body := usage.report(devices)) is not None:
                report(workload, body)
        usage.forget()
