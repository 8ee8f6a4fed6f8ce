"""Python objects on their way to the pool and back, as bytes of our own.

Dask keeps a module that a worker imported once, so edited code would go on running as it was. Here everything that is
not installed travels by value with each task: what the notebook defines, and modules that lie beside it.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle

from gpufair.cpu.errors import Unpicklable
from gpufair.node.checkpoint.reasons import explain

# Puts the namespace at place 0 of the reader's memo, where the pickler has it too; see gpufair.node.checkpoint.pickler.
_PRELUDE = b"\x80\x05\x8c\x09namespaceQ\x94."
_INSTALLED = tuple(
    {os.path.realpath(path) + os.sep for path in (*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix) if path}
)
_OURS = ("gpufair", "jupyter_gpufair")
_registering = threading.Lock()
_local_files: dict[str, bool] = {}


class Parcel:
    """Pickled bytes, and beside them the large buffers, which nobody copies on the way."""

    __slots__ = ("buffers", "head")

    def __init__(self, head: bytes, buffers: Sequence[Any] = ()) -> None:
        self.head, self.buffers = head, buffers

    def __reduce_ex__(self, protocol: Any) -> Any:
        if protocol < 5:  # Dask pickles so where it does not know what the other side reads
            return Parcel, (self.head, [bytearray(buffer) for buffer in self.buffers])
        return Parcel, (self.head, [pickle.PickleBuffer(buffer) for buffer in self.buffers])

    @property
    def size_bytes(self) -> int:
        return len(self.head) + sum(memoryview(buffer).nbytes for buffer in self.buffers)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.size_bytes  # by which a Dask worker knows when to spill

    def open(self, namespace: dict[str, Any] | None = None) -> Any:
        """The object again; the notebook's functions in it live in ``namespace``."""
        reader = _Reader(io.BytesIO(_PRELUDE + self.head), buffers=self.buffers)
        reader.namespace = {} if namespace is None else namespace
        reader.load()
        return reader.load()


class _Reader(pickle.Unpickler):
    namespace: dict[str, Any]

    def persistent_load(self, pid: object) -> Any:
        return self.namespace


class _Writer(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    def __init__(
        self, file: io.BytesIO, namespace: dict[str, Any], replace: Callable[[Any], Any], buffers: list[Any], bare: bool
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
        self.memo = {id(namespace): (0, namespace)}
        self.globals_ref[id(namespace)] = namespace
        self.last: object = None
        self._namespace, self._replace, self._bare = namespace, replace, bare

    def reducer_override(self, obj: Any) -> Any:
        self.last = obj
        replaced = self._replace(obj)
        return super().reducer_override(obj) if replaced is None else replaced

    def _dynamic_function_reduce(self, func: Any) -> Any:
        reduced = super()._dynamic_function_reduce(func)
        if self._bare and func.__globals__ is self._namespace:
            reduced[2][1]["__globals__"] = {}
        return reduced


def as_it_is(obj: Any) -> None:
    """Nothing is replaced."""


def pack(
    parts: dict[str, Any],
    namespace: dict[str, Any] | None = None,
    *,
    replace: Callable[[Any], Any] = as_it_is,
    bare: bool = False,
    by_reference: Sequence[str] = (),
) -> Parcel:
    """Pickle ``parts``; what they share is shared again on the other side.

    Args:
        parts: The objects, by the names that an error calls them.
        namespace: Globals of the notebook's functions; it does not travel, the reader gives its own.
        replace: Asked for each object; a reduction (as of ``__reduce__``), or None for the usual one.
        bare: Functions of ``namespace`` travel without the globals that they refer to.
        by_reference: Modules that the workers have and that must not travel, though they look like local files.

    Raises:
        Unpicklable: Names the part, and what in it is to blame.
    """
    space = {} if namespace is None else namespace
    with _registering, _local_modules_by_value(by_reference):
        try:
            return _written(parts, space, replace, bare)[0]
        except Exception as error:  # noqa: BLE001 - __reduce__ of users' classes may raise anything
            for name, value in parts.items():
                writer: list[_Writer] = []
                try:
                    _written(value, space, replace, bare, writer)
                except Exception as one:  # noqa: BLE001
                    raise Unpicklable(name, _reason(name, value, writer[0].last, one)) from None
            raise Unpicklable(", ".join(parts), _reason("it", parts, parts, error)) from None


def _reason(name: str, value: object, last: object, error: BaseException) -> str:
    told = explain(name, value, last, error)
    # Its remedies are for sessions that are restored; those of the pool are the error's own.
    return told.partition(": ")[0] if told.startswith(("is ", "holds ")) else f"does not pickle: {told}"


def _written(
    value: Any, namespace: dict[str, Any], replace: Callable[[Any], Any], bare: bool, made: list[_Writer] | None = None
) -> tuple[Parcel, _Writer]:
    file, buffers = io.BytesIO(), list[Any]()
    writer = _Writer(file, namespace, replace, buffers, bare)
    if made is not None:
        made.append(writer)
    writer.dump(value)
    return Parcel(file.getvalue(), buffers), writer


@contextmanager
def _local_modules_by_value(by_reference: Sequence[str]) -> Iterator[None]:
    known = cloudpickle.list_registry_pickle_by_value()
    taken = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if name == "__main__" or top in _OURS or top in by_reference or name in by_reference or name in known:
            continue
        if getattr(module, "__name__", None) == name and _is_local(getattr(module, "__file__", None)):
            cloudpickle.register_pickle_by_value(module)
            taken.append(module)
    try:
        yield
    finally:
        for module in taken:
            cloudpickle.unregister_pickle_by_value(module)


def _is_local(file: object) -> bool:
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    if file not in _local_files:
        _local_files[file] = not os.path.realpath(file).startswith(_INSTALLED)
    return _local_files[file]
