"""One pickler for all variables, so that what they share is shared again after the restore."""

from __future__ import annotations

import functools
import pickle
import types
from typing import IO, Any

import cloudpickle

from gpufair.node.checkpoint.reasons import Cause, NotSavable, refused
from gpufair.node.checkpoint.views import Views

# Below this a buffer stays in the stream: a file of its own costs an fsync (4 ms on the slow disk it was measured on).
MIN_BUFFER_BYTES = 64 << 10
NAMESPACE = "namespace"

# What every reader must execute first: it puts the live namespace at place 0 of the memo, where the pickler has it too.
# PROTO 5, SHORT_BINUNICODE "namespace", BINPERSID, MEMOIZE, STOP.
PRELUDE = b"\x80\x05\x8c" + bytes([len(NAMESPACE)]) + NAMESPACE.encode() + b"Q\x94."

_Cached = type(functools.lru_cache(len))


class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    """Pickles variables one by one with a shared memo.

    The namespace itself is never pickled. References to it, above all as the globals of the notebook's functions, are
    memo entry 0, which the reader fills with its own live namespace. (A ``persistent_id`` would do the same, but is
    called for every object: six times slower on a list of integers.)

    Attributes:
        last: The object that was looked at last; after a failure mostly the one to blame.
        buffers: Out-of-band buffers so far, in order.
    """

    def __init__(self, file: IO[bytes], namespace: dict[str, object], views: Views) -> None:
        self.buffers: list[memoryview] = []
        super().__init__(file, protocol=5, buffer_callback=self._kept_in_band)
        self.memo = {id(namespace): (0, namespace)}
        self.globals_ref[id(namespace)] = namespace
        self.last: object = None
        self._namespace = namespace
        self._views = views
        self._verdicts: dict[type, Cause | None] = {}

    def _kept_in_band(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # not contiguous: let the pickler say so for this variable
        if raw.nbytes < MIN_BUFFER_BYTES:
            return True
        self.buffers.append(raw)
        return False

    def reducer_override(self, obj: Any) -> Any:
        self.last = obj
        kind = type(obj)
        try:
            verdict = self._verdicts[kind]
        except KeyError:
            verdict = self._verdicts[kind] = refused(kind)
        if verdict is not None:
            raise NotSavable(verdict.what)
        if kind is types.CellType:
            return types.CellType, (), (obj.cell_contents,) if _is_set(obj) else None, None, None, set_cell
        if kind is _Cached and isinstance(obj.__wrapped__, types.FunctionType) and obj.__module__ == "__main__":
            # By itself it would be looked up by name in __main__, where nothing is yet when it is restored.
            parameters = obj.cache_parameters()
            return make_cached, (obj.__wrapped__, parameters["maxsize"], parameters["typed"])
        if kind is self._views.ndarray and (view := self._views.reduce(obj)) is not None:
            return view
        return super().reducer_override(obj)

    def _function_getnewargs(self, func: Any) -> Any:
        # cloudpickle gives each function cells of its own, so that a counter and its reader part company.
        # Ours are made empty and filled as state, which also ends the recursion that it avoids.
        return (*super()._function_getnewargs(func)[:-1], func.__closure__)

    def _dynamic_function_reduce(self, func: Any) -> Any:
        reduced = super()._dynamic_function_reduce(func)
        reduced[2][1]["__closure__"] = None
        if func.__globals__ is self._namespace:
            # What a notebook's function refers to is a variable of its own. With a copy of it inside the function, a
            # generator that the function mentions would take the function with it.
            reduced[2][1]["__globals__"] = {}
        return reduced


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way
    except ValueError:
        return False
    return True


def set_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Fill a cell of a closure. Called by name from checkpoints."""
    cell.cell_contents = state[0]


def make_cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    """``functools.lru_cache`` of a notebook's function, with an empty cache. Called by name from checkpoints."""
    return functools.lru_cache(maxsize, typed)(function)
