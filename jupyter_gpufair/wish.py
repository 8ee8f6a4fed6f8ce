"""What a notebook asks for beside its profile: ``gpufair_request`` in its metadata, as the front end's dialog writes it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError

KEY = "gpufair_request"
MOST_BYTES = 512 << 20  # a notebook with more outputs than this is not read for its wish
# Jupyter writes a notebook in place, and may save it while its kernel is started: half of it is read then.
SAVED_S, AGAIN_S = 5.0, 0.05
_WHOLE = "a whole number"
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "allocation": ((str,), 'a path like "language/pretrain"'),
    "gpus": ((int,), _WHOLE),
    "nodes": ((int,), _WHOLE),
    "gpu_type": ((str,), 'a type like "H200"'),
    "min_runtime_s": ((int, float), "seconds"),
}


class BadWish(GpufairError):
    """The request in a notebook's metadata makes no sense."""

    def __init__(self, notebook: str, name: str, value: object, remedy: str) -> None:
        super().__init__(notebook, name, value, remedy)
        self.notebook, self.name, self.value, self.remedy = notebook, name, value, remedy

    def __str__(self) -> str:
        shown = json.dumps(self.value)
        where = f"{KEY}.{self.name}" if self.name else KEY
        return (
            f"the metadata of {Path(self.notebook).name} has {where} = {shown if len(shown) <= 80 else shown[:79] + '…'}; "
            f"{self.remedy}"
        )


class BadNotebook(GpufairError):
    """A notebook's file is there and cannot be understood, so what it asks for is unknown."""

    def __init__(self, notebook: str, reason: str) -> None:
        super().__init__(notebook, reason)
        self.notebook, self.reason = notebook, reason

    def __str__(self) -> str:
        return (
            f"{Path(self.notebook).name} was read for what it asks for and is no notebook ({self.reason}); "
            "save it again, or restore it from a checkpoint in the File menu"
        )


def wish_of(notebook: str) -> dict[str, Any]:
    """The request of a notebook's file; empty where it has none, or there is no such file here. May wait for it to be saved.

    Args:
        notebook: Its absolute path.

    Raises:
        BadWish: It has one with unknown names or values of the wrong kind. What the scheduler does not grant it says itself.
        BadNotebook: The file is no JSON, and is not about to be.
    """
    path = Path(notebook)
    try:
        if path.suffix != ".ipynb" or path.stat().st_size > MOST_BYTES:
            return {}
        found = _saved(path)["metadata"][KEY]
    except (OSError, KeyError, TypeError):
        return {}
    except (ValueError, RecursionError) as err:
        raise BadNotebook(notebook, str(err)) from err
    if not isinstance(found, dict):
        raise BadWish(notebook, "", found, f"give an object with some of {', '.join(_KINDS)}, or remove it")
    for name, value in found.items():
        if name not in _KINDS:
            raise BadWish(notebook, str(name), value, f"known are {', '.join(_KINDS)}")
        kinds, form = _KINDS[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise BadWish(notebook, name, value, f"give {form}")
    return found


def _saved(path: Path) -> Any:
    until = time.monotonic() + SAVED_S
    while True:
        try:
            return json.loads(path.read_bytes())
        except ValueError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
