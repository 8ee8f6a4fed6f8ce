"""A container as far as Linux alone makes one: own process ids, a root that is read-only, an account without a name."""

from __future__ import annotations

import functools
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

NOBODY = 54_321  # as some clusters choose for each namespace; in no passwd


def contained(writable: Iterable[Path]) -> list[str]:
    """What a command line begins with, so that it runs in one in which only these folders can be written to."""
    lines = ["mount --make-rprivate /"]
    lines += [f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(path))}" for path in writable]
    # Each mount on its own: the flag of the root says nothing of what is mounted below it.
    kept = " ".join(shlex.quote(str(path)) for path in writable)
    lines += [
        f"""for at in $(awk '{{print $2}}' /proc/self/mounts); do
            case " {kept} /proc /dev/shm " in *" $at "*) continue;; esac
            mount -o remount,bind,ro "$at" 2>/dev/null || true
        done""",
        f'exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$@"',
    ]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "\n".join(lines), "sh"]


@functools.cache
def impossible() -> str:
    """Why there can be none here; "": there can."""
    probe = [*contained([]), "sh", "-c", "test $$ = 1 && ! touch /tmp/probe 2>/dev/null"]
    try:
        ran = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=30)
    except OSError as err:
        return str(err)
    return "" if ran.returncode == 0 else f"no namespaces here: {ran.stderr.strip()[-200:]}"
