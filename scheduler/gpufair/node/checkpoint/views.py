"""Arrays that look into one memory keep doing so: a view is saved as base and offset instead of as a copy.

Kept for arrays that are variables themselves, and for arrays anywhere else that look into those. Two views that sit
only inside other objects come back as copies.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Reduced = tuple[Any, ...]


class Views:
    """Which arrays are views into memory that is shared with a variable. Built once per dump."""

    def __init__(self, values: Iterable[object]) -> None:
        numpy = sys.modules.get("numpy")
        self.ndarray: type | None = getattr(numpy, "ndarray", None)  # None while numpy is half imported, too
        self._anchors: set[int] = set()
        if self.ndarray is None:
            return
        members: dict[int, dict[int, Any]] = defaultdict(dict)
        for value in values:
            if type(value) is self.ndarray:
                root = self._root(value)
                if root is not None:
                    members[id(root)][id(value)] = value
        for anchor, arrays in members.items():
            root = self._root(next(iter(arrays.values())))
            # A shared root that no variable names any more may be far larger than what is still visible of it.
            visible = sum(array.nbytes for array in arrays.values())
            if anchor in arrays or (len(arrays) > 1 and root.nbytes <= 2 * visible):
                self._anchors.add(anchor)

    def _root(self, array: Any) -> Any:
        """The array that ``array`` looks into in the end; itself if it is no view; None if it cannot be an anchor."""
        while type(array.base) is self.ndarray:
            array = array.base
        flags = array.flags
        plain = not array.dtype.hasobject and (flags.c_contiguous or flags.f_contiguous)
        return array if plain else None

    def reduce(self, array: Any) -> Reduced | None:
        """How to rebuild ``array`` from the memory it shares; None if it shares none."""
        if not self._anchors or array.base is None:
            return None
        root = self._root(array)
        if root is None or root is array or id(root) not in self._anchors or array.dtype.hasobject:
            return None
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return make_view, (root, array.shape, array.dtype, offset, array.strides, bool(array.flags.writeable))


def make_view(  # called by name from checkpoints: keep it and its arguments
    root: Any, shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...], writeable: bool
) -> Any:
    """The view of ``shape`` at ``offset`` bytes into ``root``."""
    import numpy as np  # noqa: PLC0415 - only where a saved session used it

    view: Any = np.ndarray(shape, dtype, buffer=root, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
