"""``python -m jupyter_gpufair.batch FOLDER``: the runner of one notebook, started as a command on a node."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gpufair.core.errors import GpufairError
from jupyter_gpufair.batch.runner import run


def main() -> int:
    """Entry point. Returns the exit status: 0 all cells ran, 1 one failed or the job cannot run, 143 told to leave."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m jupyter_gpufair.batch FOLDER\n")
        return 2
    try:
        return asyncio.run(run(Path(sys.argv[1])))
    except GpufairError as err:
        sys.stderr.write(f"gpufair: {err}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
