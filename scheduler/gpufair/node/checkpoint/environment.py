"""Environment variables that the session has changed. Secrets are not kept, and those of the process are its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_MAX_VALUE = 32 << 10
_MAX_CHANGES = 1_000

# By name, or by a value that is an address with a password. One too many is told to the user; one too few is a leak.
_SECRET_NAME = re.compile(
    r"secret|token|passw|passphrase|pwd$|credential|private|auth|cookie|signature|salt|dsn$|(^|_)pat($|_)|(^|_|api)keys?(_id|_file)?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/\s]*:[^/\s]*@")

# What belongs to a process, a node or an allocation: on another one it is wrong.
_OWN = re.compile(
    r"(CUDA|NVIDIA|HIP|ROCR|GPU)_(VISIBLE_DEVICES|DEVICE_ORDINAL)|(GPUFAIR|JPY|KERNEL|SLURM|PMI)_.*|PWD|OLDPWD|SHLVL|_"
)


def changed() -> tuple[dict[str, str | None], tuple[str, ...]]:
    """What differs from the start of this process: new values (None: removed), and names of secrets left out.

    Nothing where the system does not tell how a process was started.
    """
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}, ()
    initial = dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)
    return differences(initial, os.environ)


def differences(initial: Mapping[str, str], now: Mapping[str, str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """How ``now`` differs from ``initial``: see ``changed``."""
    kept: dict[str, str | None] = {}
    withheld = []
    for name in sorted({*initial, *now}):
        value = now.get(name)
        if value == initial.get(name) or _OWN.fullmatch(name):
            continue
        if value is not None and (
            _SECRET_NAME.search(name)
            or _SECRET_VALUE.search(value)
            or len(value) > _MAX_VALUE
            or len(kept) >= _MAX_CHANGES
        ):
            withheld.append(name)
        else:
            kept[name] = value
    return kept, tuple(withheld[:_MAX_CHANGES])


def enter(changes: Mapping[str, str | None], withheld: Iterable[str]) -> list[str]:
    """Make the session's changes here.

    Returns: Warnings: what was not kept and is not set here either.
    """
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    missing = [name for name in withheld if name not in os.environ]
    if not missing:
        return []
    return [f"not kept in checkpoints, as they may be secrets or are too large: {', '.join(missing)}; set them again"]
