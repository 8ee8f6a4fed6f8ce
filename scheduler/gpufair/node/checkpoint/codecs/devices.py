"""Where the arrays of a device go when they are restored: to the device of that number, else to another, else to the CPU."""

from __future__ import annotations

import mmap
import pickle
from importlib import import_module
from itertools import count
from typing import Any

from gpufair.node.checkpoint.codecs.registry import Reduced, remark
from gpufair.node.checkpoint.views import Views

_numbers = count()


def not_copied(size_bytes: int, views: Views) -> Reduced | None:
    """How memory of a device is pickled in a pass that must not copy it, which can take as long as the save itself.

    Different each time, so that it counts as changed. Where the size is asked for there is memory of that size, of which
    nobody reads a byte: so it takes none. None where a copy is wanted.
    """
    if views.devices == "copy":
        return None
    if views.devices == "nothing" or not size_bytes:
        return count, (next(_numbers),)
    return count, (next(_numbers), pickle.PickleBuffer(mmap.mmap(-1, size_bytes)))


def placed(number: int, present: int) -> int | None:
    """Which of ``present`` devices takes what was on device ``number``; None where there is none.

    Several devices are folded onto fewer ones evenly, so that what was apart stays apart as long as there is room.
    """
    return number % present if present else None


def torch_device(kind: str, number: int | None) -> Any:
    """The ``torch.device`` here for one of the saved session. Called by name from checkpoints."""
    torch: Any = import_module("torch")
    if kind in ("cpu", "meta"):
        return torch.device(kind)
    module = getattr(torch, kind, None)  # torch.cuda, torch.xpu, torch.mps
    present = module.device_count() if module is not None and module.is_available() else 0
    here = placed(number or 0, present)
    if here is None:
        remark(f"what was on the device {kind} is on the CPU now, because this node has no such device")
        return torch.device("cpu")
    if number is not None and here != number:
        remark(
            f"what was on {kind}:{number} is on {kind}:{here} now, because this session has {present} such device(s)"
        )
    return torch.device(kind, None if number is None else here)
