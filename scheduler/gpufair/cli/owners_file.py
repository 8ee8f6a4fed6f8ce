"""The table of an agent that runs as root: which account of its machine belongs to which user."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gpufair.cli.exits import CommandError, Wrong
from gpufair.node.owners import Account, Owners

_NOBODY: Final = Account("nobody", 65_534, 65_534, (65_534,), "/", "/bin/sh")  # may do what everybody may
_LIMIT_S: Final = 60.0
RUN_AS: Final = ("owner", "agent")


def owners(run_as: str, table: Path | None) -> dict[str, Any] | None:
    """The agent's option ``owners``: by default workloads run as their owners where the agent is root.

    Raises:
        CommandError: The table cannot be used, or this agent may not start anything as somebody else.
    """
    if run_as and run_as not in RUN_AS:
        raise Wrong(f"--run-as {run_as!r}: expected owner or agent")
    root = os.geteuid() == 0
    if run_as == "agent" or (not run_as and not root and table is None):
        if table is not None:
            raise Wrong("--owners is for workloads that run as their owners, and --run-as agent says that none do")
        return None
    if not root:
        raise CommandError("only root can start workloads as their owners; start the agent as root, or leave out --owners")
    return asdict(Owners()) if table is None else asdict(_read(table))


def unusable(folder: Path) -> str:
    """Why accounts of this machine could not run workloads of an agent with this folder; "" if they can. Blocks.

    Asked as nobody: what that account may not do, others may not count on.
    """
    look = "import os, sys; import gpufair.node.supervisor, gpufair.node.child; os.stat(os.path.join(sys.argv[1], '.'))"
    try:
        ran = subprocess.run(
            [sys.executable, "-s", "-P", "-c", look, str(folder)],
            user=_NOBODY.uid,
            group=_NOBODY.gid,
            extra_groups=[],
            env=_NOBODY.environment(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return (
            f"{sys.executable} cannot be run by other accounts ({getattr(err, 'strerror', None) or err}); install "
            "jupyter-gpufair where all may read it, /opt/gpufair for one"
        )
    if not ran.returncode:
        return ""
    why = (ran.stderr.strip().splitlines() or ["no reason was given"])[-1][:300]
    return f"other accounts can't use jupyter-gpufair in {sys.prefix}, or pass through {folder}: {why}"


def _read(path: Path) -> Owners:
    try:
        about = path.stat()
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise CommandError(f"--owners {path} cannot be read ({err})") from err
    if about.st_uid not in {0, os.geteuid()} or about.st_mode & 0o022:
        raise CommandError(f"--owners {path} decides as whom workloads run, and others may write to it; run `chmod go-w {path}`")
    try:
        return Owners.read(data)
    except ValueError as err:
        raise CommandError(f"--owners {path}: {err}") from err
