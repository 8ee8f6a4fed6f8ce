"""``python -m tests.gpu_check``: what only a real GPU can show, in at most four minutes.

Exit code 0: all held. 1: something did not. 3: there is nothing to check on (no GPU, or no torch that can use one);
then it says so and has checked nothing. What it checks is described in docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from gpufair.node import gpus as real_gpus
from gpufair.node.gpus import Gpu

LIMIT_S = 230.0
BALLAST_BYTES = 2 << 30
SLACK_BYTES = 256 << 20  # of other processes on the GPU, and of what a context takes besides
PASSED, FAILED, NOTHING = 0, 1, 3


class Nvml(Protocol):
    """What is asked of ``gpufair.node.gpus``."""

    def inventory(self) -> tuple[Gpu, ...]: ...
    def used_bytes(self, gpu_ids: Any) -> dict[str, int]: ...
    def holders(self, gpu_ids: Any, pids: Any) -> list[tuple[str, int]]: ...
    def await_release(self, gpu_ids: Any, pids: Any) -> list[tuple[str, int]]: ...


class Failed(Exception):
    """A step did not come to its end."""


class Child:
    """A process of ``tests.gpu_child``."""

    def __init__(self, deadline: float, visible: str, *argv: str) -> None:
        self._deadline = deadline
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu_child", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        self.last: dict[str, Any] = {}

    def hear(self) -> dict[str, Any]:
        """The next line. Raises ``Failed`` where none comes."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            if not ready.select(max(self._deadline - time.monotonic(), 0.0)):
                raise Failed("the time was over before a process answered")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"a process ended with code {self.process.wait()} in place of an answer")
        self.last = json.loads(line)
        return self.last

    def say(self, word: str) -> dict[str, Any]:
        """A word to it, and its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        """Let it end, and see that it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(max(min(self._deadline - time.monotonic(), 20.0), 0.1))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Check:
    """One run. ``kind`` is ``cuda``; the tests of the check say ``cpu`` and bring an NVML of their own."""

    def __init__(self, nvml: Nvml, kind: str = "cuda", *, ballast_bytes: int = BALLAST_BYTES, limit_s: float = LIMIT_S):
        self.nvml, self.kind, self.ballast_bytes = nvml, kind, ballast_bytes
        self.slack_bytes = min(SLACK_BYTES, ballast_bytes // 4)
        self.deadline = time.monotonic() + limit_s
        self.children: list[Child] = []
        self.results: list[dict[str, Any]] = []

    # ---------------------------------------------------------------- saying
    def held(self, what: str, true: bool, seen: str = "") -> bool:
        """Note one finding."""
        self.results.append({"what": what, "held": bool(true), "seen": seen})
        print(f"{'ok  ' if true else 'FAIL'}  {what}{': ' + seen if seen else ''}", flush=True)
        return bool(true)

    def left_out(self, what: str, why: str) -> None:
        """Note what this machine cannot show."""
        self.results.append({"what": what, "held": None, "seen": why})
        print(f"--    {what}: left out, {why}", flush=True)

    @property
    def code(self) -> int:
        """The exit code."""
        return FAILED if any(result["held"] is False for result in self.results) or not self.results else PASSED

    @contextmanager
    def child(self, visible: str, *argv: str) -> Iterator[Child]:
        """A process that is gone afterwards."""
        child = Child(self.deadline, visible, *argv)
        self.children.append(child)
        try:
            yield child
        finally:
            child.end()

    # ---------------------------------------------------------------- the checks
    def run(self) -> int:
        """All of it. Returns the exit code."""
        begun = time.monotonic()
        try:
            found = self.nvml.inventory()
            self.held(
                "the inventory names every GPU once", len({gpu.id for gpu in found}) == len(found) > 0, _list(found)
            )
            with tempfile.TemporaryDirectory(prefix="gpufair-gpu-check-") as folder:
                saved = self._train_and_save(found, folder)
                self._restore(found, folder, saved)
        except Failed as err:
            self.held("every step came to its end", False, str(err))
        print(f"{time.monotonic() - begun:.0f} s in all", flush=True)
        return self.code

    def _train_and_save(self, found: tuple[Gpu, ...], folder: str) -> dict[str, Any]:
        """Swap, save, free and end, on the last GPU; what has to come back."""
        home = found[-1].id
        visible = ",".join(gpu.id for gpu in found)
        device = f"{self.kind}:{len(found) - 1}" if self.kind == "cuda" else self.kind
        idle = self._used(home)
        with self.child(visible, "train", self.kind, device, folder, str(self.ballast_bytes)) as child:
            trained = child.hear()
            pid = int(trained["pid"])
            full = self._used(home)
            self.held("tensors take memory of the GPU", full - idle > self.ballast_bytes * 0.9, _change(idle, full))
            self.held(
                "NVML names the process that has a context on it",
                self.nvml.holders([home], [pid]) == [(home, pid)],
                "if not: in a container NVML may know other process ids, or none; then nobody can tell a release",
            )
            self._swap(child, home, idle, full)
            saved = child.say("save")
            rate = saved["size_bytes"] / max(saved["duration_s"], 1e-9) / 1e9
            self.held("nothing is lost in the checkpoint", not saved["lost"], str(saved["lost"] or f"{rate:.2f} GB/s"))
            child.say("free")
            freed = self._used(home)
            self.held("freed memory is free", freed - idle < self.slack_bytes + _CONTEXT_BYTES, _change(full, freed))
            self.held("a context counts as a held GPU, however little it uses", bool(self.nvml.holders([home], [pid])))
        self.held("a GPU is released when the process has ended", not self.nvml.await_release([home], [pid]))
        after = self._settled(home, idle)
        self.held("its memory is really back then", after - idle < self.slack_bytes, _change(idle, after))
        return {**trained, "after": saved["weights"], "losses": saved["losses"]}

    def _swap(self, child: Child, home: str, idle: int, full: int) -> None:
        before = dict(child.last)
        out = child.say("swap")
        self.held("a swap keeps identities, views, gradients and the optimizer's state", not out["wrong"], _text(out))
        self.held("a swap keeps all values", _values(out) == _values(before))
        swapped = self._used(home)
        self.held(
            "a swap gives the memory back",
            full - swapped > 0.9 * out["moved_bytes"] > 0.8 * self.ballast_bytes,
            _change(full, swapped),
        )
        pid = int(out["pid"])
        self.held("a swap is no release", self.nvml.holders([home], [pid]) == [(home, pid)])
        back = child.say("back")
        self.held(
            "what was swapped comes back to the GPU as it was",
            not back["wrong"] and _values(back) == _values(before),
            _text(back),
        )
        self.held("and takes its memory again", self._used(home) - idle > self.ballast_bytes * 0.9)

    def _restore(self, found: tuple[Gpu, ...], folder: str, saved: dict[str, Any]) -> None:
        """In other processes: on another device index where there is one, and where there is no GPU at all."""
        what = "restored on another device index"
        if len(found) < 2 and self.kind == "cuda":
            self.left_out(what, "there is one GPU only; restored on the same index instead")
            what = "restored on the same device index"
        with self.child(found[0].id, "restore", self.kind, folder) as child:
            got = child.hear()
            where = f"{self.kind}:0" if self.kind == "cuda" else self.kind
            self.held(f"{what}: nothing is lost", not got["lost"] and not got.get("wrong"), _text(got))
            if not got["lost"]:
                self.held(f"{what}: it is there", got["device"] == where, got["device"])
                self.held(f"{what}: values", _values(got) == _values(saved))
                same = (got["losses"], got["after"]) == (saved["losses"], saved["after"])
                self.held(f"{what}: training goes on bit for bit", same, f"{got['losses']} against {saved['losses']}")
        with self.child("", "restore", "cpu", folder) as child:
            got = child.hear()
            what = "restored without a GPU"
            self.held(f"{what}: nothing is lost", not got["lost"] and not got.get("wrong"), _text(got))
            if not got["lost"]:
                self.held(f"{what}: it is on the CPU", got["device"] == "cpu", got["device"])
                self.held(f"{what}: values", _values(got) == _values(saved))

    # ---------------------------------------------------------------- asking
    def _used(self, gpu_id: str) -> int:
        used = self.nvml.used_bytes([gpu_id])
        if gpu_id not in used:
            raise Failed(f"NVML does not tell how much memory of {gpu_id} is in use")
        return used[gpu_id]

    def _settled(self, gpu_id: str, idle: int) -> int:
        """The memory in use when the driver has tidied up, five seconds after at the latest."""
        until = time.monotonic() + 5.0
        while (used := self._used(gpu_id)) - idle >= self.slack_bytes and time.monotonic() < until:
            time.sleep(0.1)
        return used


_CONTEXT_BYTES = 1 << 30  # allowed to a context with torch's kernels: a guess, until it has been measured


def _list(found: tuple[Gpu, ...]) -> str:
    return "; ".join(f"{gpu.type}, {gpu.memory_bytes / (1 << 30):.0f} GiB" for gpu in found)


def _change(before: int, after: int) -> str:
    return f"{before / (1 << 20):.0f} MiB, then {after / (1 << 20):.0f} MiB"


def _values(facts: dict[str, Any]) -> tuple[Any, Any]:
    return facts.get("weights"), facts.get("base")


def _text(facts: dict[str, Any]) -> str:
    return "; ".join([*facts.get("wrong", ()), *(f"{name}: {why}" for name, why in (facts.get("lost") or {}).items())])


def cuda_of_torch() -> str:
    """Why torch cannot use a GPU here; empty where it can. Asked in a process of its own."""
    code = "import torch; print('' if torch.cuda.is_available() else f'torch {torch.__version__} finds no CUDA device')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    return ran.stdout.strip() if ran.returncode == 0 else "there is no torch"


def main(nvml: Nvml = real_gpus, why_not: Callable[[], str] = cuda_of_torch) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check", description="Check gpufair on a real GPU.")
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    asked = parser.parse_args()
    reason = "NVML finds no GPU" if not nvml.inventory() else why_not()
    if reason:
        print(f"Nothing was checked: {reason}. This needs an NVIDIA GPU with its driver, and a torch built for CUDA.")
        return NOTHING
    check = Check(nvml)
    code = check.run()
    if asked.json is not None:
        facts = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "code": code, "results": check.results}
        asked.json.write_text(json.dumps(facts, indent=1) + "\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
