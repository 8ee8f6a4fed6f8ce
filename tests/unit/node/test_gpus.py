"""Which GPUs there are, who gets which, and when they count as free."""

import sys
from types import SimpleNamespace

import pytest

from gpufair.node.gpus import Gpu, allot, await_release, holders, inventory, utilization, virtual, visible_devices


class NvmlError(Exception):
    pass


class FakeNvml:
    """Stands in for pynvml: two GPUs, contexts in ``running``."""

    NVMLError = NvmlError

    def __init__(self) -> None:
        self.running: dict[str, list[int]] = {"GPU-a": [], "GPU-b": []}
        self.open = 0
        self.broken = False
        self.asked = 0
        self.rates: dict[str, int | None] = {}

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        if self.rates.get(handle) is None:
            raise NvmlError("not supported")
        return SimpleNamespace(gpu=self.rates[handle], memory=1)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise NvmlError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.running)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return list(self.running)[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.running:
            raise NvmlError("not found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:  # noqa: N802
        return handle.encode()

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "NVIDIA X"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        self.asked += 1
        found = [SimpleNamespace(pid=pid) for pid in self.running[handle]]
        if self.asked == 3:
            self.running[handle] = []  # the driver lets go a moment later
        return found


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    yield fake
    assert fake.open == 0, "each nvmlInit needs its nvmlShutdown"


def test_the_inventory_is_what_nvml_lists(nvml):
    assert inventory() == (Gpu("GPU-a", "NVIDIA X", 80 << 30), Gpu("GPU-b", "NVIDIA X", 80 << 30))


def test_no_driver_and_no_package_mean_no_gpus(nvml, monkeypatch):
    nvml.broken = True
    assert inventory() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert inventory() == ()
    assert holders(["GPU-a"], [1]) == []


def test_the_lowest_free_devices_are_allotted():
    ids = virtual(4)
    assert allot(ids, [], 2) == ("virtual-0", "virtual-1")
    assert allot(ids, ["virtual-0", "virtual-2"], 2) == ("virtual-1", "virtual-3")
    assert allot(ids, ["virtual-0", "virtual-2"], 3) is None
    assert allot(ids, ids, 0) == ()


def test_virtual_devices_are_seen_by_index_and_real_ones_by_uuid():
    assert visible_devices(("virtual-3", "virtual-10")) == "3,10"
    assert visible_devices(("GPU-a", "GPU-b")) == "GPU-a,GPU-b"
    assert visible_devices(()) == ""  # hides all; an unset variable would show all


def test_only_contexts_of_the_workload_count(nvml):
    nvml.running["GPU-a"] = [10, 99]
    assert holders(["GPU-a", "GPU-b", "GPU-fell-off"], [10, 11]) == [("GPU-a", 10)]
    assert holders(["virtual-0"], [10]) == []


def test_a_gpu_is_released_when_the_driver_has_let_go(nvml):
    nvml.running["GPU-b"] = [7]
    assert await_release(["GPU-b"], iter([7]), timeout_s=5.0, pause_s=0.001) == []
    assert nvml.asked == 4


def test_what_stays_held_is_named_when_the_time_is_over(nvml):
    nvml.running["GPU-b"] = [7]
    nvml.asked = 10
    assert await_release(["GPU-b"], [7], timeout_s=0.02, pause_s=0.001) == [("GPU-b", 7)]


def test_utilization_is_a_fraction_and_unknown_is_left_out(nvml):
    """A GPU that cannot be asked is not an idle one."""
    nvml.rates = {"GPU-a": 75, "GPU-b": None}
    assert utilization(["GPU-a", "GPU-b", "GPU-fell-off", "virtual-0"]) == {"GPU-a": 0.75}
    assert utilization(["virtual-0"]) == {}
    nvml.broken = True
    assert utilization(["GPU-a"]) == {}
