"""What of CuPy the checkpoints touch, over memory of the host: two GPUs, or as many as FAKE_GPUS says."""

from __future__ import annotations

import os

import numpy as np

_GPUS = int(os.environ.get("FAKE_GPUS", "2"))
_current = [0]


class _Memory:
    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, "u1")
        self.size, self.ptr, self.device_id = size, self.bytes.ctypes.data, _current[-1]


class _MemoryPointer:
    def __init__(self, mem: _Memory, offset: int) -> None:
        self.mem, self.offset, self.ptr = mem, offset, mem.ptr + offset

    def __add__(self, more: int) -> _MemoryPointer:
        return _MemoryPointer(self.mem, self.offset + more)


class _Device:
    def __init__(self, number: int) -> None:
        if not 0 <= number < _GPUS:
            raise ValueError(f"no device {number}")
        self.id = number

    def __enter__(self) -> None:
        _current.append(self.id)

    def __exit__(self, *_: object) -> None:
        _current.pop()


class ndarray:  # noqa: N801 - as CuPy calls it
    """An array on a pretended GPU. Like the real one it has no buffer for the host and cannot be iterated from there."""

    def __init__(self, shape, dtype=float, memptr=None, strides=None):
        self.dtype = np.dtype(dtype)
        self.shape = tuple(shape)
        if memptr is None:
            memptr = _MemoryPointer(_Memory(max(1, int(np.prod(self.shape))) * self.dtype.itemsize), 0)
        self.data = memptr
        self._host = np.ndarray(self.shape, self.dtype, memptr.mem.bytes, memptr.offset, strides)
        self.strides = self._host.strides

    @property
    def device(self):
        return _Device(self.data.mem.device_id)

    def get(self):
        return self._host.copy()

    def __getitem__(self, index):
        cut = self._host[index]
        offset = cut.__array_interface__["data"][0] - self.data.mem.ptr
        return ndarray(cut.shape, cut.dtype, _MemoryPointer(self.data.mem, offset), cut.strides)

    def __setitem__(self, index, value):
        self._host[index] = value

    def __reduce__(self):
        raise TypeError("this fake is saved by our codec or not at all")


ndarray.__module__ = "cupy"


def asarray(values):
    """To the current device."""
    made = ndarray(values.shape, values.dtype)
    made[...] = values
    return made


def arange(stop, dtype="i8"):
    """On the current device."""
    return asarray(np.arange(stop, dtype=dtype))


def asnumpy(array):
    """To the host."""
    return array.get()


class cuda:  # noqa: N801 - stands for a module
    Device, MemoryPointer = _Device, _MemoryPointer

    class runtime:  # noqa: N801
        @staticmethod
        def getDeviceCount():  # noqa: N802
            if not _GPUS:
                raise RuntimeError("cudaErrorNoDevice")
            return _GPUS
