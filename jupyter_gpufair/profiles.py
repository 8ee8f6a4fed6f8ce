"""A kernelspec for each profile of the service, in a folder of this server's own."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpufair.client.endpoint import is_alive
from gpufair.client.types import Profile

SHIPPED = frozenset({"gpufair-1gpu", "gpufair-cpu"})  # kernelspecs of the default profiles, there before any service is
_PREFIX = "gpufair-kernelspecs-"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")  # what Jupyter accepts as the name of a kernelspec


def own_folder(runtime: Path) -> Path:
    """This server's folder for kernelspecs, 0700. What killed servers left behind is removed."""
    for old in runtime.glob(f"{_PREFIX}*"):
        pid = old.name.removeprefix(_PREFIX)
        if not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(old, ignore_errors=True)
    folder = runtime / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def kernelspec_of(profile: Profile) -> dict[str, Any]:
    """The ``kernel.json`` of a profile."""
    gpus = profile.gpus * profile.nodes
    shape = "CPU" if gpus == 0 else f"{gpus} GPU" + ("s" if gpus > 1 else "")
    return {
        "argv": ["python", "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"],
        "display_name": profile.display_name or f"{profile.name} ({shape})",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {
            "debugger": True,
            "gpufair": {
                "gpus": profile.gpus,
                "nodes": profile.nodes,
                "gpu_type": profile.gpu_type,
                "allocation": profile.allocation,
                "min_runtime_s": profile.min_runtime_s,
            },
            "kernel_provisioner": {"provisioner_name": "gpufair-provisioner", "config": {"profile": profile.name}},
        },
    }


def write_kernelspecs(profiles: Iterable[Profile], folder: Path) -> list[str]:
    """Make ``folder`` hold exactly the kernelspecs of these profiles; returns their names.

    A profile whose name cannot be a kernelspec's is left out.
    """
    wanted = {f"gpufair-{profile.name.lower()}": profile for profile in profiles if _NAME.fullmatch(profile.name)}
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.iterdir():
        if old.name not in wanted:
            shutil.rmtree(old, ignore_errors=True)
    for name, profile in wanted.items():
        place = folder / name
        place.mkdir(exist_ok=True, mode=0o700)
        text = json.dumps(kernelspec_of(profile), indent=1) + "\n"
        target = place / "kernel.json"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            fresh = place / "kernel.json.new"
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(target)  # Jupyter may be reading the old one
    return sorted(wanted)
