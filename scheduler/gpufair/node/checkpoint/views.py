"""Arrays that look into one memory keep doing so: a view is saved as base and offset instead of as a copy.

The base of variables that are arrays is known before the dump. Of others it is seen during the dump that they share
one; then the dump is done again, with the base known.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

Reduced = tuple[Any, ...]
Devices = Literal["copy", "size", "nothing"]


class Views:
    """Which arrays look into memory that is shared. Lives over the passes of one dump.

    Attributes:
        shared: What codecs keep from pass to pass, so that a device's memory is copied once.
        devices: What a pass wants of memory on devices: a copy on the host; or its size only, for a pass that measures;
            or nothing, for a pass that looks for changes, which must take it as changed.
    """

    def __init__(self, values: Iterable[object], devices: Devices = "copy") -> None:
        self.devices: Devices = devices
        numpy = sys.modules.get("numpy")
        self.ndarray: type | None = getattr(numpy, "ndarray", None)  # None while numpy is half imported, too
        self._memmap: type | None = getattr(numpy, "memmap", None)
        self.shared: dict[tuple[Any, ...], Any] = {}
        self._anchors: dict[int, Any] = {}  # id -> root; the values keep the ids from being used again
        self._owners: list[tuple[int, Any]] = []  # address and array of memory that a tensor may look into, sorted
        self._seen: dict[int, dict[int, Any]] = defaultdict(dict)  # id of a root -> arrays that were saved as copies
        self._asked: list[tuple[int, int]] = []  # memory of tensors with no owner known: address, bytes
        if self.ndarray is not None:
            for value in values:
                if type(value) is self.ndarray:
                    self._see(self.root(value), value)
            self._owners = self._addresses()
            self._choose()

    def forget(self) -> None:
        """Begin a pass: what an earlier one saw may have been lost since."""
        self._seen.clear()
        self._asked.clear()

    def missed(self) -> bool:
        """Whether the pass that has ended saved things apart that share memory. The next one will not."""
        before = len(self._anchors)
        seen = self._addresses()
        owners = [item for item in seen if any(_covers(item, *memory) for memory in self._asked)] if self._asked else []
        self._owners = sorted([*self._owners, *owners], key=lambda item: item[0])
        self._choose()
        return bool(owners) or len(self._anchors) > before

    def owner(self, address: int, size_bytes: int) -> tuple[Any, int] | None:
        """The array whose memory holds these bytes, as far as one is known, and where in it they begin."""
        at = bisect_right(self._owners, address, key=lambda item: item[0]) - 1
        if at >= 0 and _covers(self._owners[at], address, size_bytes):
            return self._owners[at][1], address - self._owners[at][0]
        self._asked.append((address, size_bytes))
        return None

    def _addresses(self) -> list[tuple[int, Any]]:
        roots = (self.root(next(iter(arrays.values()))) for arrays in self._seen.values())
        return sorted(((_address(root), root) for root in roots if root.nbytes), key=lambda item: item[0])

    def _see(self, root: Any, array: Any) -> None:
        if root is not None and not lent(root):
            self._seen[id(root)][id(array)] = array

    def _choose(self) -> None:
        for anchor, arrays in self._seen.items():
            root = self.root(next(iter(arrays.values())))
            # A shared root that nothing names any more may be far larger than what is still visible of it.
            visible = sum(array.nbytes for array in arrays.values())
            if len(arrays) > 1 and (anchor in arrays or root.nbytes <= 2 * visible):
                self._anchors[anchor] = root
        self._seen.clear()

    def root(self, array: Any) -> Any:
        """The array that ``array`` looks into in the end; itself if it is no view; None if it cannot be an anchor."""
        while type(array.base) in (self.ndarray, self._memmap):
            array = array.base
        flags = array.flags
        plain = not array.dtype.hasobject and (flags.c_contiguous or flags.f_contiguous)
        return array if plain else None

    def reduce(self, array: Any) -> Reduced | None:
        """How to rebuild ``array`` from the memory it shares; None if it shares none."""
        root = self.root(array)
        if root is None or array.dtype.hasobject:
            return None
        if root is array or (id(root) not in self._anchors and type(root) is not self._memmap):
            self._see(root, array)
            return None
        return make_view, (root, *layout(array, _address(root)))


def lent(root: Any) -> bool:
    """Whether the memory of an array without a base array is a tensor's."""
    return type(root.base).__module__.startswith("torch")


def layout(array: Any, address: int) -> tuple[Any, ...]:
    """Where ``array`` lies in memory that begins at ``address``: the arguments of ``make_view`` after the first."""
    return array.shape, array.dtype, _address(array) - address, array.strides, bool(array.flags.writeable)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _covers(item: tuple[int, Any], address: int, size_bytes: int) -> bool:
    return item[0] <= address and address + size_bytes <= item[0] + int(item[1].nbytes)


def make_view(  # called by name from checkpoints: keep it and its arguments
    root: Any, shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...], writeable: bool
) -> Any:
    """The view of ``shape`` at ``offset`` bytes into ``root``."""
    import numpy as np  # noqa: PLC0415 - only where a saved session used it

    view: Any = np.ndarray(shape, dtype, buffer=root, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
