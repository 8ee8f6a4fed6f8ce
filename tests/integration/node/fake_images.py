"""A plugin for process images that knows the tiny kernel only: what CRIU does for any process, it does by a signal."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.integration.node import tiny_kernel


class FakeImages:
    def problem(self):
        return os.environ.get("FAKE_IMAGES_PROBLEM", "")

    def dump(self, pid, folder, limit_s):
        environ = dict(
            pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in pair
        )
        written = Path(environ["TINY_FOLDER"])
        os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + limit_s
        while not written.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the kernel does not write")
            time.sleep(0.01)
        written.rename(folder / "variables.json")
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        shutil.copy(words[words.index("-f") + 1], folder / "connection.json")

    def restore_command(self, folder):
        return [
            sys.executable,
            tiny_kernel.__file__,
            "-f",
            str(folder / "connection.json"),
            str(folder / "variables.json"),
        ]
