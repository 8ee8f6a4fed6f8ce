"""Objects of Python itself: closures' cells, weak references and containers, views of dicts."""

from __future__ import annotations

import functools
import gc
import struct
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from gpufair.node.checkpoint.codecs.registry import Dump, Reduced
from gpufair.node.checkpoint.reasons import NotSavable


def cell(obj: types.CellType, dump: Dump) -> Reduced:
    """The cell of a closure, empty and then filled, so that functions which share it go on sharing."""
    try:
        contents = (obj.cell_contents,)
    except ValueError:
        return types.CellType, ()
    return types.CellType, (), contents, None, None, set_cell


def set_cell(made: types.CellType, state: tuple[Any]) -> None:
    """Fill a cell. Called by name from checkpoints."""
    made.cell_contents = state[0]


def cached(obj: Any, dump: Dump) -> Reduced | None:
    """``functools.lru_cache`` of a notebook's function, which pickle would look up by name in an empty __main__."""
    if not isinstance(obj.__wrapped__, types.FunctionType) or obj.__module__ != "__main__":
        return None
    parameters = obj.cache_parameters()
    return make_cached, (obj.__wrapped__, parameters["maxsize"], parameters["typed"])


def make_cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    """With an empty cache. Called by name from checkpoints."""
    return functools.lru_cache(maxsize, typed)(function)


def cached_property(obj: Any, dump: Dump) -> Reduced:
    """``functools.cached_property``, which has a lock before Python 3.12."""
    return make_cached_property, (obj.func, obj.attrname)


def make_cached_property(function: Any, name: str | None) -> Any:
    """Called by name from checkpoints."""
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


def compiled_format(obj: struct.Struct, dump: Dump) -> Reduced:
    """``struct.Struct``."""
    return struct.Struct, (obj.format,)


# ---------------------------------------------------------------------- weak references
# The referent is saved too. If nothing else of the session holds it, it is gone again once the restore is over.


def weak_reference(obj: Any, dump: Dump) -> Reduced:
    """``weakref.ref`` and its subclass for methods."""
    referent = obj()
    kind = type(obj)
    if kind not in (weakref.ref, weakref.WeakMethod):
        raise NotSavable("a weak reference of a class of its own", "keep a weakref.ref, or register a codec for it")
    if referent is None:
        return make_dead, ()
    return make_weak, (kind, referent, obj.__callback__ if kind is weakref.ref else None)


def weak_proxy(obj: Any, dump: Dump) -> Reduced:
    """``weakref.proxy``, whose attributes are those of its referent: above all ``__self__`` of its methods."""
    try:
        referent = obj.__init__.__self__
    except ReferenceError:
        return make_dead_proxy, ()
    return weakref.proxy, (referent,)


def make_weak(kind: Any, referent: Any, callback: Any) -> Any:
    """A weak reference. Called by name from checkpoints."""
    return kind(referent) if callback is None else kind(referent, callback)


class _Gone:
    """The referent of references that were dead when they were saved."""


def make_dead() -> Any:
    """A dead reference. Called by name from checkpoints."""
    return weakref.ref(_Gone())


def make_dead_proxy() -> Any:
    """A dead proxy. Called by name from checkpoints."""
    return weakref.proxy(_Gone())


def weak_set(obj: weakref.WeakSet[Any], dump: Dump) -> Reduced:
    """Filled after it was made: its members may know it."""
    return type(obj), (), list(obj), None, None, fill_set


def fill_set(made: weakref.WeakSet[Any], members: Iterable[Any]) -> None:
    """Fill a weak set. Called by name from checkpoints."""
    made.update(members)


def weak_mapping(obj: Any, dump: Dump) -> Reduced:
    """``WeakValueDictionary`` and ``WeakKeyDictionary``."""
    return type(obj), (), list(obj.items()), None, None, fill_mapping


def fill_mapping(made: Any, items: Iterable[tuple[Any, Any]]) -> None:
    """Fill a weak dictionary. Called by name from checkpoints."""
    for key, value in items:
        made[key] = value


# ---------------------------------------------------------------------- views of dicts
def dict_view(obj: Any, dump: Dump) -> Reduced:
    """``d.keys()`` and its like, which follow their dict."""
    return make_dict_view, (_behind(obj.mapping), type(obj).__name__.rpartition("_")[2])


def make_dict_view(mapping: dict[Any, Any], method: str) -> Any:
    """A view of a dict. Called by name from checkpoints."""
    plain = OrderedDict if isinstance(mapping, OrderedDict) else dict  # not a method of the user's subclass
    return getattr(plain, method)(mapping)


def mapping_proxy(obj: types.MappingProxyType[Any, Any], dump: Dump) -> Reduced:
    """A read-only view of a mapping."""
    return types.MappingProxyType, (_behind(obj),)


def _behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """The mapping that ``proxy`` shows; only the garbage collector tells."""
    return gc.get_referents(proxy)[0]


# ---------------------------------------------------------------------- what each process has of its own
_STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")


def standard_stream(obj: Any, dump: Dump) -> Reduced:
    """``out = sys.stdout``: whatever is the standard output where it is restored."""
    for name in _STREAMS:
        if getattr(sys, name, None) is obj:
            return getattr, (sys, name)
    raise NotSavable("an output stream", "use sys.stdout, or open it again after the restore")


def shell(obj: Any, dump: Dump) -> Reduced:
    """``ip = get_ipython()``: the shell that is there when it is restored."""
    return sys.modules["IPython"].get_ipython, ()
