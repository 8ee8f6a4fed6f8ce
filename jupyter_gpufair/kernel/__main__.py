"""``python -m jupyter_gpufair.kernel -f CONNECTION_FILE``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

STAYS = "GPUFAIR_BATCH_KERNEL"  # the variable that asks for it


def main() -> None:
    """Start the kernel; returns when it has been shut down."""
    # As ipykernel's own launcher: a file `random.py` in the user's folder must not break the start.
    # InteractiveShellApp.init_path puts the folder back for the user's imports.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]

    if os.environ.pop(STAYS, ""):
        _stay()

    from jupyter_gpufair.kernel.launch import launch  # noqa: PLC0415

    launch()


def _stay() -> None:
    """Outlive the SIGTERM that goes to all processes of a batch notebook: its runner ends the kernel when it is time.

    By a handler, which programs that are started from here don't inherit, and forks are rid of: they are ended by it.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


if __name__ == "__main__":
    main()
