"""What a kernel's start becomes for the scheduler: the launch part of a submission. It is journalled, so it holds no secret."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

_SECRET = re.compile(r"(?i).*(token|secret|passw|credential|api_?key|private_?key|auth).*")
# What decides which programs and libraries a kernel sees: the server's, not those of whoever started the service first.
_PASSED = re.compile(
    r"PATH|PYTHONPATH|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV)|IPYTHONDIR|MPLBACKEND|LANG|LC_\w+|TZ"
)
_PYTHON = frozenset({"python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info[:2])})


def kernel_launch(
    argv: Sequence[str],
    spec_env: Mapping[str, str],
    *,
    cwd: str,
    kernel_name: str,
    env: Mapping[str, str] = os.environ,
    resource_dir: str = "",
    local: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """The launch part of a submission, and the names of variables that were left out of it because they look secret.

    Args:
        argv: The kernelspec's, with ``{connection_file}`` for the supervisor to fill in.
        spec_env: The kernelspec's variables; ``${NAME}`` in them means the server's.
        env: The kernel manager's environment; ``JPY_SESSION_NAME`` in it is the notebook.
        local: The kernel will run on this machine, so this interpreter and these paths mean something there.
    """
    known = {"resource_dir": resource_dir, "prefix": sys.prefix}
    command = [re.sub(r"\{(resource_dir|prefix)\}", lambda match: known[match.group(1)], part) for part in argv]
    if local and command and command[0] in _PYTHON:
        command[0] = sys.executable
    passed = {name: value for name, value in env.items() if local and _PASSED.fullmatch(name)}
    left_out = []
    for name, value in spec_env.items():
        names = [name, *(match[1] or match[2] or "" for match in re.findall(r"\$(\{?)(\w+)|\$\{(\w+)\}", value))]
        if any(_SECRET.fullmatch(each) for each in names if each):
            left_out.append(name)
        else:
            passed[name] = Template(value).safe_substitute(env)
    notebook = env.get("JPY_SESSION_NAME", "")
    if notebook:
        passed["JPY_SESSION_NAME"] = notebook
    launch = {
        "type": "kernel",
        "argv": command,
        "cwd": cwd,
        "env": passed,
        "kernel_name": kernel_name,
        "notebook": notebook,
    }
    return launch, left_out


def hooks_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``on_preempt`` and ``on_resume`` of a kernelspec: the text of a cell, or a command as a list."""
    given = metadata.get("gpufair")
    found = {name: given.get(name) for name in ("on_preempt", "on_resume")} if isinstance(given, Mapping) else {}
    return {name: hook for name, hook in found.items() if hook}


def saves_itself(argv: Sequence[str], metadata: Mapping[str, Any]) -> bool:
    """Whether a kernel can be checkpointed: ours can. A kernelspec may say so of itself, as ``resumable``."""
    given = metadata.get("gpufair")
    if isinstance(given, Mapping) and isinstance(given.get("resumable"), bool):
        return bool(given["resumable"])
    return "jupyter_gpufair.kernel" in argv


def place_of(notebook: str, root: str) -> tuple[str, str, str] | None:
    """(path, name, type) of the Jupyter session that belongs to ``notebook``; None if it is not under ``root``.

    Args:
        notebook: Absolute path of the document.
        root: The server's root folder.
    """
    try:
        path = Path(notebook).relative_to(Path(root).expanduser().absolute()).as_posix()
    except ValueError:
        return None
    if not notebook or path == ".":
        return None
    name = path.rsplit("/", 1)[-1]
    return path, name, "notebook" if name.endswith(".ipynb") else "console"
