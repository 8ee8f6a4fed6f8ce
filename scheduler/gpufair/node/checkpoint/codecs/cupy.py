"""CuPy: arrays that share memory of a device go on sharing it; without a device they come back as NumPy's arrays."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from gpufair.node.checkpoint.codecs.devices import not_copied, placed
from gpufair.node.checkpoint.codecs.registry import Dump, Reduced, remark
from gpufair.node.checkpoint.views import Views


class Memory:
    """A piece of a device's memory. One for each, so that the pickler's memo knows it."""

    def __init__(self, memory: Any, views: Views) -> None:
        self._memory, self._views = memory, views
        self._host: Any = None

    def __reduce__(self) -> Reduced:
        """Its bytes, copied to the host."""
        if (reduced := not_copied(self._memory.size, self._views)) is not None:
            return reduced
        if self._host is None:
            cupy = sys.modules["cupy"]
            whole = cupy.ndarray((self._memory.size,), dtype="u1", memptr=cupy.cuda.MemoryPointer(self._memory, 0))
            self._host = cupy.asnumpy(whole)
        return make_memory, (self._host, self._memory.device_id)


def array(obj: Any, dump: Dump) -> Reduced:
    """An array as offset and strides into memory."""
    memory = obj.data.mem
    shared = dump.once(("cupy", memory.device_id, memory.ptr, memory.size), lambda: Memory(memory, dump.views))
    return make_array, (shared, obj.dtype, obj.data.ptr - memory.ptr, obj.shape, obj.strides)


def make_memory(values: Any, number: int) -> Any:
    """An array of bytes on a device, or on the host. Called by name from checkpoints."""
    try:
        cupy: Any = import_module("cupy")
        present = cupy.cuda.runtime.getDeviceCount()
    except Exception:  # noqa: BLE001 - it fails in many ways where there is no driver
        present = 0
    here = placed(number, present)
    if here is None:
        remark("CuPy's arrays are NumPy arrays now, because CuPy finds no GPU here; cupy.asarray takes them back")
        return values
    if here != number:
        remark(f"CuPy's arrays that were on GPU {number} are on GPU {here} now")
    with cupy.cuda.Device(here):
        return cupy.asarray(values)


def make_array(memory: Any, dtype: Any, offset: int, shape: Any, strides: Any) -> Any:
    """An array into that memory. Called by name from checkpoints."""
    numpy: Any = import_module("numpy")
    if type(memory) is numpy.ndarray:
        return numpy.ndarray(shape, dtype, memory, offset, strides)
    return sys.modules["cupy"].ndarray(shape, dtype=dtype, memptr=memory.data + offset, strides=strides)
