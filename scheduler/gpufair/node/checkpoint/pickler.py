"""One pickler for all variables, so that what they share is shared again after the restore."""

from __future__ import annotations

import copyreg
import pickle
from functools import partial
from typing import IO, Any

import cloudpickle

from gpufair.node.checkpoint.codecs import classes
from gpufair.node.checkpoint.codecs.registry import Codec, Dump, lookup
from gpufair.node.checkpoint.reasons import refusal
from gpufair.node.checkpoint.views import Views

# Below this a buffer stays in the stream: a file of its own costs an fsync (4 ms on the slow disk it was measured on).
MIN_BUFFER_BYTES = 64 << 10
NAMESPACE = "namespace"

# What every reader must execute first: it puts the live namespace at place 0 of the memo, where the pickler has it too.
# PROTO 5, SHORT_BINUNICODE "namespace", BINPERSID, MEMOIZE, STOP.
PRELUDE = b"\x80\x05\x8c" + bytes([len(NAMESPACE)]) + NAMESPACE.encode() + b"Q\x94."


class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    """Pickles variables one by one with a shared memo.

    The namespace itself is never pickled. References to it, above all as the globals of the notebook's functions, are
    memo entry 0, which the reader fills with its own live namespace. (A ``persistent_id`` would do the same, but is
    called for every object: six times slower on a list of integers.)

    Attributes:
        last: The object that was looked at last; after a failure mostly the one to blame.
        buffers: Out-of-band buffers so far, in order.
        shared: What the codecs have in common during this pass.
    """

    def __init__(
        self, file: IO[bytes], namespace: dict[str, object], views: Views, buffers: list[memoryview] | None = None
    ) -> None:
        self.buffers: list[memoryview] = [] if buffers is None else buffers
        # Not a method of its own: in a cycle with that the memo of a whole pass would wait for the garbage collector.
        super().__init__(file, protocol=5, buffer_callback=partial(_kept_in_band, self.buffers))
        self.memo = {id(namespace): (0, namespace)}
        self.globals_ref[id(namespace)] = namespace
        self.last: object = None
        self._namespace = namespace
        self.shared = Dump(views)
        self._codecs: dict[type, Codec | None] = {}

    def reducer_override(self, obj: Any) -> Any:
        self.last = obj
        kind = type(obj)
        if isinstance(obj, type):
            # Pickling the first instance would enter this into the class, and make it look changed the next time.
            copyreg._slotnames(obj)  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            codec = self._codecs[kind]
        except KeyError:
            codec = self._codecs[kind] = lookup(kind) or refusal(kind)
        if codec is not None and (reduced := codec(obj, self.shared)) is not None:
            return reduced
        reduced = super().reducer_override(obj)
        if type(reduced) is tuple and len(reduced) == 6 and reduced[5] is cloudpickle.cloudpickle._class_setstate:  # noqa: SLF001
            return classes.loading_first(reduced, obj)
        return reduced

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


def _kept_in_band(buffers: list[memoryview], buffer: pickle.PickleBuffer) -> bool:
    try:
        raw = buffer.raw()
    except BufferError:
        return True  # not contiguous: let the pickler say so for this variable
    if raw.nbytes < MIN_BUFFER_BYTES:
        return True
    buffers.append(raw)
    return False
