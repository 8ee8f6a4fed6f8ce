"""NumPy: arrays that look into one memory, and files mapped into memory."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from gpufair.node.checkpoint.codecs import torch
from gpufair.node.checkpoint.codecs.files import check_unchanged, facts_of
from gpufair.node.checkpoint.codecs.registry import Dump, Reduced
from gpufair.node.checkpoint.reasons import NotSavable
from gpufair.node.checkpoint.views import lent


def array(obj: Any, dump: Dump) -> Reduced | None:
    """An array, unless it is of a class of its own, which pickles itself."""
    views = dump.views
    if type(obj) is not views.ndarray:
        return None
    root = views.root(obj)
    return torch.array_of_tensor(obj, root.base, dump) if root is not None and lent(root) else views.reduce(obj)


def memory_map(obj: Any, dump: Dump) -> Reduced:
    """``numpy.memmap``: a file that is mapped again, where nobody has changed it."""
    view = dump.views.reduce(obj)
    if view is not None:
        return make_mapped_view, view[1]
    if obj._mmap is None or obj.filename is None:  # noqa: SLF001 - numpy's documentation names it
        raise NotSavable("memory mapped from a file", "map it again after the restore, or copy it into an array")
    if obj.mode in ("r+", "w+"):
        obj.flush()
    descriptor = os.open(obj.filename, os.O_RDONLY)
    try:
        facts = facts_of(descriptor)
    finally:
        os.close(descriptor)
    mode = "r+" if obj.mode == "w+" else obj.mode
    if mode == "c":
        dump.note("changes to memory mapped with mode 'c' are not in its file, and so not in the checkpoint")
    return make_memory_map, (
        tuple(facts),
        obj.dtype,
        mode,
        obj.offset,
        obj.shape,
        "C" if obj.flags.c_contiguous else "F",
    )


def make_memory_map(facts: tuple[Any, ...], dtype: Any, mode: Any, offset: int, shape: Any, order: Any) -> Any:
    """Called by name from checkpoints."""
    return import_module("numpy").memmap(check_unchanged(facts), dtype, mode, offset, shape, order)


def make_mapped_view(root: Any, shape: Any, dtype: Any, offset: int, strides: Any, writeable: bool) -> Any:
    """A part of a mapped file, which is a ``memmap`` as well. Called by name from checkpoints."""
    numpy: Any = import_module("numpy")
    view = numpy.ndarray.__new__(numpy.memmap, shape, dtype, root, offset, strides)
    for name in ("_mmap", "filename", "offset", "mode"):
        setattr(view, name, getattr(root, name))
    if not writeable:
        view.flags.writeable = False
    return view
