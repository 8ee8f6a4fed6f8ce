"""The check for real GPUs, on a stand-in: that it sees what is wrong, not only what is right."""

import sys
from typing import Any

import pytest

from gpufair.node.gpus import Gpu
from tests import gpu_check
from tests.gpu_check import FAILED, NOTHING, PASSED, Check, Failed

pytest.importorskip("torch")
IDLE_BYTES = 300 << 20
BALLAST_BYTES = 8 << 20


class FakeNvml:
    """One GPU that holds what the check's living processes say they hold."""

    def __init__(self) -> None:
        self.check: Any = None
        self.leaks = 0  # bytes that do not come back
        self.blind = False  # as in a container with process ids of its own

    def inventory(self):
        return (Gpu("GPU-a", "Fake", 1 << 30),)

    def _living(self):
        return [child for child in self.check.children if child.process.poll() is None and child.last]

    def used_bytes(self, gpu_ids):
        used = sum(child.last.get("device_bytes", 0) for child in self._living())
        return dict.fromkeys(gpu_ids, IDLE_BYTES + max(used, self.leaks if len(self.check.results) > 2 else 0))

    def holders(self, gpu_ids, pids):
        if self.blind:
            return []
        return [(gpu_ids[0], child.process.pid) for child in self._living() if child.process.pid in pids]

    def await_release(self, gpu_ids, pids):
        return self.holders(gpu_ids, pids)


def _check(nvml):
    nvml.check = Check(nvml, "cpu", ballast_bytes=BALLAST_BYTES, limit_s=120)
    return nvml.check


def test_it_passes_where_all_is_well():
    """The whole course: train, swap, save, free, end, restore twice."""
    check = _check(FakeNvml())
    assert check.run() == PASSED, check.results
    held = [result["what"] for result in check.results if result["held"]]
    assert len(held) >= 18, held
    assert "a swap keeps identities, views, gradients and the optimizer's state" in held


def test_it_sees_memory_that_does_not_come_back_and_processes_that_nvml_does_not_name(monkeypatch):
    """A check that cannot fail shows nothing."""
    nvml = FakeNvml()
    nvml.leaks, nvml.blind = BALLAST_BYTES, True
    check = _check(nvml)
    monkeypatch.setattr(check, "_restore", lambda *_: None)
    assert check.run() == FAILED
    failed = {result["what"] for result in check.results if result["held"] is False}
    assert failed == {
        "NVML names the process that has a context on it",
        "a swap gives the memory back",
        "a swap is no release",
        "a context counts as a held GPU, however little it uses",
        "its memory is really back then",
    }


def test_a_process_that_dies_or_hangs_is_not_waited_for():
    check = _check(FakeNvml())
    with check.child("", "nonsense") as child, pytest.raises(Failed, match="ended with code 1"):
        child.hear()
    check.deadline = 0.0
    with check.child("", "train", "cpu", "cpu", "", "4") as child, pytest.raises(Failed, match="time was over"):
        child.hear()


@pytest.mark.parametrize(("there", "why"), [((), ""), ((Gpu("GPU-a", "Fake", 1),), "torch 9+cpu finds no CUDA device")])
def test_without_a_gpu_it_says_so_and_has_a_code_of_its_own(there, why, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    nvml = FakeNvml()
    monkeypatch.setattr(nvml, "inventory", lambda: there)
    assert gpu_check.main(nvml, lambda: why) == NOTHING
    assert capsys.readouterr().out.startswith(f"Nothing was checked: {why or 'NVML finds no GPU'}.")
