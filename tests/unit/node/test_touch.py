"""Whether GPUs that are held are used: by what is really open and what NVML says, and silence where neither can tell."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import processes, touch
from gpufair.node.touch import Holder, Watch, touched, watch
from tests.unit.node.test_gpus import FakeNvml

KEY = ("w", 1)
HOLDS = "import sys, time\nfile = open(sys.argv[1]) if len(sys.argv) > 1 else None\nprint(flush=True)\ntime.sleep(60)"


@contextmanager
def process(tag: str, *files: Path) -> Iterator[int]:
    """A process of the workload with this tag that holds these files open."""
    argv = [sys.executable, "-c", HOLDS, *map(str, files)]
    with subprocess.Popen(argv, env={**os.environ, processes.TAG: tag}, stdout=subprocess.PIPE) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            yield popen.pid
        finally:
            popen.kill()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_whoever_holds_a_device_file_open_uses_it(tmp_path: Path) -> None:
    """By pattern, and each workload for itself."""
    device, other = tmp_path / "nvidia0", tmp_path / "nvidiactl"
    device.touch()
    other.touch()
    files = [f"{tmp_path}/nvidia[0-9]*"]
    holders = {("a", 1): Holder(("virtual-0",), "tag-touch-a"), ("b", 2): Holder(("virtual-1",), "tag-touch-b")}
    with process("tag-touch-a", device), process("tag-touch-b", other):
        assert touched(holders, files) == {("a", 1): True, ("b", 2): False}


def test_of_virtual_gpus_nothing_is_known() -> None:
    """They have no device; and of a workload without a process that we may look at nothing is known either."""
    with process("tag-touch-virtual"):
        assert touched({KEY: Holder(("virtual-0",), "tag-touch-virtual")}) == {}
    assert touched({KEY: Holder(("virtual-0",), "tag-touch-gone")}, ["/dev/null"]) == {}


@pytest.mark.parametrize("sees_all", [True, False])
def test_nvml_is_believed_as_far_as_it_sees(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, sees_all: bool) -> None:
    """Yes is yes. A no from inside a container is none: there the device files tell. What is broken tells nothing."""
    monkeypatch.setattr(touch, "sees_all", lambda: sees_all)
    monkeypatch.setattr(touch, "DEVICE_FILES", ("/dev/null",))
    nvml.rates = {"GPU-a": 0, "GPU-b": 0}
    holders = {KEY: Holder(("GPU-a", "GPU-b"), "tag-touch-nvml")}
    with process("tag-touch-nvml", Path("/dev/null")):
        assert touched(holders) == {KEY: not sees_all}
        nvml.rates["GPU-b"] = 3
        assert touched(holders) == {KEY: True}
        nvml.rates["GPU-b"] = 0
        nvml.running["GPU-a"] = [1]
        assert touched(holders) == {KEY: True}
    assert nvml.open == 0


def test_what_is_told_is_since_when_and_only_when_it_is_news() -> None:
    """A first look counts from itself: what was before is not known."""
    known = Watch(60.0)
    since = lambda told: [body["unused_since_s"] for _, body in told]  # noqa: E731
    assert since(known.look({KEY: False}, 1_000.0)) == [1_000.0]
    assert since(known.look({KEY: False}, 1_010.0)) == []
    assert since(known.look({KEY: False}, 1_061.0)) == [1_000.0], "for a service that was started meanwhile"
    assert since(known.look({KEY: True}, 1_070.0)) == [None]
    assert since(known.look({KEY: True}, 1_080.0)) == []
    assert since(known.look({KEY: False}, 1_090.0)) == [1_080.0], "when it was last seen to use them"
    assert since(known.look({}, 1_100.0)) == []
    assert since(known.look({KEY: False}, 1_110.0)) == [1_110.0], "a look that could not see proves nothing"


async def test_it_looks_again_and_again(tmp_path: Path) -> None:
    """A report when it is first seen, and one when its GPUs are let go."""
    device = tmp_path / "gpu0"
    device.touch()
    told: list[Any] = []
    holders = {KEY: Holder(("virtual-0",), "tag-touch-watch")}
    with process("tag-touch-watch"):
        with process("tag-touch-watch", device):
            task = asyncio.create_task(
                watch(lambda: holders, lambda key, body: told.append((key, body)), [str(device)], 0.01)
            )
            async with asyncio.timeout(30):
                while not told:
                    await asyncio.sleep(0.01)
            assert told[0] == (KEY, {"unused_since_s": None})
        async with asyncio.timeout(30):
            while told[-1] == told[0]:
                await asyncio.sleep(0.01)
        task.cancel()
    assert told[-1][1]["unused_since_s"] > 0
