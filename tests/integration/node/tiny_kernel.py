"""A kernel of another language, which has never heard of gpufair: ``set x 1``, ``get x``, ``wait 60``, ``save FILE``,
``load FILE``, ``fail``. On SIGUSR1 it writes its variables to a file, which is how ``fake_images`` makes an image of it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class TinyKernel(Kernel):
    implementation = banner = "tiny"
    implementation_version = language_version = "1"
    language_info = {"name": "tiny", "mimetype": "text/plain", "file_extension": ".tiny"}  # noqa: RUF012
    variables: dict[str, str] = {}  # noqa: RUF012

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        word, *rest = code.split() or [""]
        try:
            if word == "set":
                self.variables[rest[0]] = rest[1]
            elif word == "wait":
                time.sleep(float(rest[0]))
            elif word == "save":
                Path(rest[0]).write_text(json.dumps(self.variables))
            elif word == "load":
                self.variables.update(json.loads(Path(rest[0]).read_text()))
            elif word == "fail":
                raise ValueError("as told")
        except (KeyboardInterrupt, ValueError, OSError) as err:
            return {
                "status": "error",
                "ename": type(err).__name__,
                "evalue": str(err),
                "traceback": [],
                "execution_count": 1,
            }
        found = {
            name: {"status": "ok", "data": {"text/plain": self.variables.get(name, "unknown")}, "metadata": {}}
            for name in (user_expressions or {}).values()
        }
        expressions = {key: found[name] for key, name in (user_expressions or {}).items()}
        return {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": expressions}


def _write(*_):
    image = Path(os.environ["TINY_FOLDER"])
    image.with_suffix(".new").write_text(json.dumps(TinyKernel.variables))
    image.with_suffix(".new").rename(image)


if __name__ == "__main__":
    if len(sys.argv) > 3:  # out of an image
        TinyKernel.variables = json.loads(Path(sys.argv.pop()).read_text())
    signal.signal(signal.SIGUSR1, _write)
    IPKernelApp.launch_instance(kernel_class=TinyKernel)
