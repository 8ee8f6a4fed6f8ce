"""A view of this machine in which other accounts may use our Python, wherever it lies; outside of it nothing changes."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import gpufair


def opened(scratch: Path) -> list[str]:
    """A command that runs the one given after it in a mount namespace of its own, as root.

    Where Python or the checkout lie behind a folder that is closed to others (as /root is), a passage to them takes the
    folder's place there.

    Args:
        scratch: A folder for the mount points.
    """
    source = Path(gpufair.__file__).resolve().parents[2]
    needed = {Path(sys.prefix), Path(sys.base_prefix).resolve(), source}
    lines = ["set -e", "mount --make-rprivate /"]
    for number, closed in enumerate(sorted({folder for path in needed if (folder := _closed(path)) is not None})):
        passage = scratch / f"passage-{number}"
        passage.mkdir(exist_ok=True)
        lines.append(f"mount -t tmpfs -o mode=711 gpufair-test {shlex.quote(str(passage))}")
        behind = sorted(path for path in needed if path.is_relative_to(closed))
        shown = sorted(closed.iterdir()) if closed in behind else behind
        for path in shown:
            there = shlex.quote(str(passage / path.relative_to(closed)))
            make = f"mkdir -p {there}" if path.is_dir() else f"touch {there}"
            lines.append(f"{make} && mount --rbind {shlex.quote(str(path))} {there}")
        lines.append(f"mount --rbind {shlex.quote(str(passage))} {shlex.quote(str(closed))}")
    return ["unshare", "--mount", "sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh"]


def impossible() -> str:
    """Why nobody else can be had here; "" if it can be done."""
    if os.geteuid() != 0:
        return "only root can start processes of other accounts"
    ran = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False, timeout=30)
    return f"no mount namespace can be made here: {ran.stderr.strip()}" if ran.returncode else ""


def _closed(path: Path) -> Path | None:
    """The outermost folder on the way to ``path`` that others cannot pass through."""
    return next((one for one in (*reversed(path.parents), path) if not one.stat().st_mode & stat.S_IXOTH), None)
