"""Images of whole processes, for kernels that cannot save their variables: the interface for plugins, and what is there.

gpufair ships no such plugin and needs none. One is a distribution with an entry point in the group
``gpufair.process_image``, which names a class without arguments like ``ProcessImages``. It is used only where the
operator named it in ``GPUFAIR_PROCESS_IMAGE`` of the node's agent, and only for kernels without our hooks. An image is
kept in a folder of its own beside the session's checkpoints, with ``image.json`` written last. docs/operators.md.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from gpufair.core.errors import GpufairError
from gpufair.node.files import read_json, write_json

GROUP = "gpufair.process_image"
SWITCH = "GPUFAIR_PROCESS_IMAGE"  # environment variable of the agent: name of the plugin's entry point
FACTS = "image.json"
_PROBE_LIMIT_S = 10.0
# https://github.com/checkpoint-restore/criu/issues/2705: sockets of a kernel cannot be dumped from this Linux on.
_BROKEN_FROM_LINUX, _BROKEN_UP_TO_CRIU = (6, 16), (4, 1, 1)


class ImageFailed(GpufairError):
    """A process image could not be made, or cannot be used."""


class ProcessImages(Protocol):
    """What a plugin does. Its methods may block; they are called from a thread. What they raise is told to the user."""

    def problem(self) -> str:
        """Why images cannot be made on this node, in a sentence; empty where they can."""

    def dump(self, pid: int, folder: Path, limit_s: float) -> None:
        """Write an image of process ``pid`` and all its descendants into the empty ``folder``.

        No cell runs. The processes are killed afterwards, whatever becomes of this. Their sockets on loopback (the five
        ports of the connection file) have other ends, which are gone when the image is used.
        """

    def restore_command(self, folder: Path) -> list[str]:
        """The command that brings the processes back as its descendants and ends with them, with the kernel's code.

        They must listen at the same ports, and their environment holds the same ``GPUFAIR_TAG``.
        """


def chosen() -> ProcessImages | None:
    """The plugin that the operator switched on; None if none is.

    Raises:
        ImageFailed: It is not installed, breaks, or says that it cannot work here.
    """
    name = os.environ.get(SWITCH, "")
    if not name:
        return None
    found = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ImageFailed(f"{SWITCH} names {name!r}, but of such plugins there are: {known}")
    try:
        plugin: ProcessImages = found[name].load()()
        problem = plugin.problem()
    except Exception as err:
        raise ImageFailed(f"the plugin {name!r} does not work: {err}") from err
    if problem:
        raise ImageFailed(f"{name} cannot make process images here: {problem}")
    return plugin


def dump(args: dict[str, Any], tag: str, child: dict[str, Any], image: str, limit_s: float) -> int:
    """Make an image of a kernel. Blocks. Nothing is left of one that fails.

    Args:
        args: ``StartArgs`` of the workload.
        tag: What marks its processes.
        child: ``{"pid", "connection"}`` of the kernel.
        image: Name of the image, as of a checkpoint.

    Returns: Its size in bytes.

    Raises:
        ImageFailed: With a reason for the user.
    """
    plugin = chosen()
    if plugin is None:
        raise ImageFailed("process images are not switched on")
    folder = Path(args["image_dir"]) / image
    try:
        folder.mkdir(mode=0o700, parents=True)
        (folder / "image").mkdir(mode=0o700)
        plugin.dump(child["pid"], folder / "image", limit_s)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        facts = {"tag": tag, "connection": child["connection"], "plugin": os.environ[SWITCH], "size_bytes": size}
        write_json(folder / FACTS, facts | {"mac": _mac(facts, args["checkpoint_key"])})
    except Exception as err:
        shutil.rmtree(folder, ignore_errors=True)
        raise ImageFailed(f"a process image could not be made: {err}") from err
    return size


def of(args: dict[str, Any]) -> dict[str, Any] | None:
    """Tag and connection of the image that a start asks for; None where it asks for a checkpoint, or for nothing.

    Raises:
        ImageFailed: There is one, but not one of this user's sessions as it was written.
    """
    if not args.get("restore"):
        return None
    facts = read_json(Path(args["image_dir"]) / args["restore"] / FACTS)
    if facts is None:
        return None
    mac = facts.pop("mac", "")
    if not hmac.compare_digest(str(mac), _mac(facts, args["checkpoint_key"])):
        raise ImageFailed("the process image was not written by a session of this user, or has been changed")
    return facts


def restore_command(args: dict[str, Any]) -> list[str]:
    """The command that brings a kernel back from the image that a start asks for. Raises ``ImageFailed``."""
    plugin = chosen()
    if plugin is None:
        raise ImageFailed(f"the session was saved as a process image, and {SWITCH} is not set on this node")
    try:
        return plugin.restore_command(Path(args["image_dir"]) / args["restore"] / "image")
    except Exception as err:
        raise ImageFailed(f"the process image cannot be used: {err}") from err


def prune(args: dict[str, Any], keep: str) -> None:
    """Delete all images of a session but one."""
    with suppress(OSError):
        for folder in Path(args["image_dir"]).iterdir():
            if folder.name != keep:
                shutil.rmtree(folder, ignore_errors=True)


def _mac(facts: dict[str, Any], key: str) -> str:
    text = json.dumps(facts, sort_keys=True).encode()
    return hmac.new(bytes.fromhex(key), b"gpufair process image\0" + text, hashlib.sha256).hexdigest()


# -------------------------------------------------------------------------- what is there
def detected() -> list[tuple[str, str]]:
    """(tool or plugin, what is known of it here), for operators. Runs ``criu check``, which may need root."""
    plugins = sorted(entry.name for entry in importlib.metadata.entry_points(group=GROUP))
    on = os.environ.get(SWITCH, "")
    found = [("CRIU", _criu()), ("cuda-checkpoint", _cuda_checkpoint())]
    for name in plugins:
        state = "switched on" if name == on else f"not switched on ({SWITCH}={name} would)"
        found.append((f"plugin {name}", state))
    if on and on not in plugins:
        found.append((f"plugin {on}", f"switched on by {SWITCH}, but not installed"))
    return found


def _criu() -> str:
    if shutil.which("criu") is None:
        return "not installed"
    version = _said("criu", "--version")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version.splitlines()[0])[:3]) if version else ()
    if not numbers:
        return "installed, but does not tell its version"
    told = ".".join(map(str, numbers))
    linux = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if linux >= _BROKEN_FROM_LINUX and numbers <= _BROKEN_UP_TO_CRIU:
        return (
            f"{told}: cannot dump a Jupyter kernel on Linux {linux[0]}.{linux[1]} (criu issue 2705); take a newer one"
        )
    checked = _said("criu", "check")
    return f"{told}: `criu check` says: {checked.splitlines()[-1] if checked else 'nothing'}"


def _cuda_checkpoint() -> str:
    if shutil.which("cuda-checkpoint") is None:
        return "not installed"
    return "installed; it needs driver 570 or later, and does not know unified memory, IPC memory or another GPU"


def _said(*argv: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_PROBE_LIMIT_S)
        return (ran.stdout + ran.stderr).strip()
    return ""


def main() -> int:
    """``python -m gpufair.node.process_image``: one line for each."""
    for name, state in detected():
        print(f"{name}: {state}")  # noqa: T201  # a command's output
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
