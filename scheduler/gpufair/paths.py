"""Where a service keeps its state, and the names in that folder that others look for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SERVICE_FILE = "service.json"  # {"url", "token", "pid", "started_s"} of the live service; 0600
SERVICE_LOCK = "service.lock"  # flock held by the live service
SERVICE_LOG = "service.log"  # stdout and stderr of an embedded service
REMOTE = "GPUFAIR_REMOTE"  # environment variable of a workload whose service is on another machine
START_LOCK = "start.lock"  # flock held by whoever is starting an embedded service


def state_dir(explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The state folder: ``explicit``, else ``$GPUFAIR_STATE_DIR``, else ``$XDG_STATE_HOME/gpufair``.

    Without any of these it is ``~/.local/state/gpufair``. The folder need not exist; the path is absolute.
    """
    if explicit is not None and str(explicit):
        return Path(explicit).expanduser().absolute()
    if chosen := environ.get("GPUFAIR_STATE_DIR"):
        return Path(chosen).expanduser().absolute()
    # The XDG rules say that a relative path there is to be ignored.
    base = environ.get("XDG_STATE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "gpufair"


def private_dir(path: Path) -> Path:
    """Make ``path`` (and its parents) if it isn't there, and make it owner-only if it is ours.

    Where others may pass through it, but neither list nor change it, it is left so: an operator has seen to that.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid == os.geteuid() and path.stat().st_mode & 0o066:
        path.chmod(0o700)
    return path
