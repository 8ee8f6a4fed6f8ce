"""What a container has, and lacks: its GPUs, and a home for an account that has no name."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path

from gpufair.node.gpus import Gpu, inventory, virtual

_SHOWN = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # the container runtime's, and CUDA's own
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-/]+")


def gpus_of(
    wanted: int | None,
    *,
    named: bool,
    environ: Mapping[str, str] = os.environ,
    found: Callable[[], Sequence[Gpu]] = inventory,
) -> tuple[tuple[str, ...], str, str]:
    """The GPUs of this container: their ids, their type, and what is wrong with them ("": nothing).

    Args:
        wanted: How many the pod has asked for; None: that is not known.
        named: They are virtual: names only.
    """
    if named:
        return virtual(wanted or 0), "", ""
    if wanted == 0:
        return (), "", ""  # an image for GPUs says "all", also where none was asked for
    for name in _SHOWN:
        # Slices are known by these names only: NVML shows the GPU that they are parts of.
        shown = [one.strip() for one in environ.get(name, "").split(",") if one.strip()]
        if shown and all(_UUID.fullmatch(one) for one in shown) and wanted in (None, len(shown)):
            return tuple(shown), next((gpu.type for gpu in found()), ""), ""
    seen = found()
    if wanted in (None, len(seen)):
        return tuple(gpu.id for gpu in seen), seen[0].type if seen else "", ""
    return (), "", (
        f"the pod has asked for {wanted} GPUs, and {len(seen)} are seen in its container; look at the device plugin of "
        "the cluster and at the pod's runtime class (NVIDIA's container runtime has to show a pod its own GPUs, all and only them)"
    )


def make_home(folder: Path, environ: MutableMapping[str, str] = os.environ) -> None:
    """See to it that libraries find a home, a name and a place for temporary files, by ``environ``.

    A container may run as any number, without an entry in passwd, and all of it may be read-only but for ``folder``.

    Raises:
        OSError: ``folder`` cannot be written to.
    """
    if not _writable(Path(environ.get("HOME") or "/")):
        home = folder / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        environ["HOME"] = str(home)
    try:
        tempfile.gettempdir()
    except OSError:
        place = folder / "tmp"
        place.mkdir(mode=0o700, exist_ok=True)
        environ["TMPDIR"] = tempfile.tempdir = str(place)
    try:
        getpass.getuser()
    except (KeyError, OSError):
        environ["USER"] = environ["LOGNAME"] = f"uid-{os.getuid()}"


def _writable(folder: Path) -> bool:
    return folder != Path("/") and folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
