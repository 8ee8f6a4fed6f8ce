"""``python -m jupyter_gpufair.kernel -f CONNECTION_FILE``."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Start the kernel; returns when it has been shut down."""
    # As ipykernel's own launcher: a file `random.py` in the user's folder must not break the start.
    # InteractiveShellApp.init_path puts the folder back for the user's imports.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]

    from jupyter_gpufair.kernel.launch import launch  # noqa: PLC0415

    launch()


if __name__ == "__main__":
    main()
