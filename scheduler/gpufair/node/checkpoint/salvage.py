"""Whatever can still be had from a variable that did not load: the objects in it that other variables share.

Two arrays share at least their dtype and the function that builds them. Without this, the loss of the first would be the
loss of both. Slow (in Python), and used for the few variables that failed.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

_ATOMS = (int, float, complex, bool, str, bytes, type(None), type)


class Lost:
    """Stands for an object that could not be made; ``touched`` are the arguments of the call that should have."""

    def __init__(self, touched: Iterable[Any] = ()) -> None:
        self.touched = tuple(touched)


def _lost(value: Any) -> bool:
    return type(value) is Lost  # isinstance would ask the object, whose __class__ may be a property of the user's


def salvage(data: memoryview, buffers: Iterator[Any], known: dict[Any, Any], memo: dict[int, Any]) -> dict[int, Any]:
    """Run one pickle as far as it goes.

    Args:
        data: The pickle, which has failed as a whole or must not be loaded.
        buffers: Its out-of-band buffers in order; ends or raises where one is damaged.
        known: Objects by persistent id.
        memo: Objects that it may refer to, by number; ``Lost`` where there is none.

    Returns: ``memo`` and the entries that this pickle makes: ``Lost`` for each object that could not be made, was
        not completed, or holds such an object.
    """
    run = _Salvage(data, buffers, known, memo)
    run.load()
    return run.sound_memo()


_Unpickler: Any = pickle._Unpickler  # noqa: SLF001 - the one in Python: pickle's own documentation of the format


class _Salvage(_Unpickler):  # type: ignore[misc]
    """An unpickler that goes on after a failure, and knows which objects are affected by it."""

    dispatch = dict(_Unpickler.dispatch)  # noqa: RUF012 - as in the base class

    def __init__(self, data: memoryview, buffers: Iterator[Any], known: dict[Any, Any], memo: dict[int, Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.memo = dict(memo)
        self._known = known
        self._tainted: set[int] = set()
        self._holders: dict[int, set[int]] = defaultdict(set)  # id of an object -> ids of those that hold it
        self._alive: dict[int, Any] = {}  # so that no id is used twice
        self._last_call: tuple[Any, Any] = (None, ())

    def persistent_load(self, pid: Any) -> Any:
        return self._known[pid]

    def sound_memo(self) -> dict[int, Any]:
        """The memo without what is tainted directly or through what it holds."""
        queue = list(self._tainted)
        while queue:
            fresh = self._holders[queue.pop()] - self._tainted
            self._tainted |= fresh
            queue.extend(fresh)
        return {n: Lost() if id(value) in self._tainted else value for n, value in self.memo.items()}

    # ------------------------------------------------------------------ bookkeeping
    def _hold(self, holder: Any, items: Iterable[Any]) -> None:
        for item in items:
            if type(item) not in _ATOMS:
                self._alive[id(item)] = item
                self._holders[id(item)].add(id(holder))
        self._alive[id(holder)] = holder

    def _taint(self, value: Any) -> None:
        if not _lost(value) and type(value) not in _ATOMS:
            self._alive[id(value)] = value
            self._tainted.add(id(value))

    def _made(self, items: list[Any], make: Any) -> Any:
        if any(_lost(item) for item in items):
            return Lost(items)
        try:
            value = make(items)
        except BaseException:  # noqa: BLE001 - an element's __hash__ may be the user's
            return Lost(items)
        self._hold(value, items)
        return value

    def _called(self, function: Any, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        if _lost(function) or _lost(args) or _lost(kwargs):
            return Lost(args.touched if _lost(args) else args)
        try:
            value = function(*args, **(kwargs or {}))
        except BaseException:  # noqa: BLE001 - constructors may be the user's
            return Lost(args)
        self._hold(value, [*args, *(kwargs or {}).values()])
        self._last_call = (value, args)
        return value

    def _filled(self, target: Any, items: Iterable[tuple[Any, ...]], put: Any) -> None:
        """``put`` the parts of each item into ``target``, whose completeness is at stake."""
        if _lost(target):
            return
        for parts in items:
            if any(_lost(part) for part in parts):
                self._taint(target)
                continue
            try:
                put(*parts)
            except BaseException:  # noqa: BLE001 - __setitem__ and __hash__ may be the user's
                self._taint(target)
            else:
                self._hold(target, parts)

    # ------------------------------------------------------------------ opcodes that run foreign code or build on it
    def load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._called(self.stack[-1], args)

    def load_newobj(self) -> None:
        args = self.stack.pop()
        cls = self.stack.pop()
        self.append(Lost() if _lost(cls) else self._called(cls.__new__, self._made([cls, args], _joined)))

    def load_newobj_ex(self) -> None:
        kwargs = self.stack.pop()
        args = self.stack.pop()
        cls = self.stack.pop()
        lost = _lost(cls)
        self.append(Lost() if lost else self._called(cls.__new__, self._made([cls, args], _joined), kwargs))

    def load_stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        try:
            self.append(self.find_class(module, name))
        except BaseException:  # noqa: BLE001 - importing a module runs it
            self.append(Lost())

    def load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]
        if _lost(target) or _lost(state):
            self.stack.pop()
            self._taint(target)
            return
        try:
            super().load_build()
        except BaseException:  # noqa: BLE001 - __setstate__ may be the user's
            self._taint(target)
        else:
            self._hold(target, [state])

    def load_pop(self) -> None:
        value: Any = self.stack[-1] if self.stack else None
        super().load_pop()
        # A call whose result is thrown away has set the state of its first argument (pickle's state_setter).
        if _lost(value):
            for item in value.touched:
                self._taint(item)
        elif value is self._last_call[0] and self._last_call[1]:
            target, *rest = self._last_call[1]
            self._hold(target, rest)

    def load_next_buffer(self) -> None:
        try:
            self.append(next(self._buffers))
        except (StopIteration, KeyError):
            self.append(Lost())

    def load_readonly_buffer(self) -> None:
        if not _lost(self.stack[-1]):
            super().load_readonly_buffer()

    def load_tuple(self) -> None:
        items = self.pop_mark()  # first: it changes what ``append`` is
        self.append(self._made(items, tuple))

    def load_tuple1(self) -> None:
        self.stack[-1] = self._made([self.stack[-1]], tuple)

    def load_tuple2(self) -> None:
        self.stack[-2:] = [self._made(self.stack[-2:], tuple)]

    def load_tuple3(self) -> None:
        self.stack[-3:] = [self._made(self.stack[-3:], tuple)]

    def load_frozenset(self) -> None:
        items = self.pop_mark()
        self.append(self._made(items, frozenset))

    def load_append(self) -> None:
        value = self.stack.pop()
        target = self.stack[-1]
        self._filled(target, [(value,)], getattr(target, "append", None))

    def load_appends(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        self._filled(target, [(item,) for item in items], getattr(target, "append", None))

    def load_additems(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        self._filled(target, [(item,) for item in items], getattr(target, "add", None))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        target = self.stack[-1]
        self._filled(target, [(key, value)], getattr(target, "__setitem__", None))

    def load_setitems(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        pairs = list(zip(items[::2], items[1::2], strict=True))
        self._filled(target, pairs, getattr(target, "__setitem__", None))


def _joined(items: list[Any]) -> tuple[Any, ...]:
    cls, args = items
    return (cls, *args)


_Salvage.dispatch |= {
    getattr(pickle, name)[0]: getattr(_Salvage, f"load_{name.lower()}")
    for name in (
        *("REDUCE", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "BUILD", "POP", "NEXT_BUFFER", "READONLY_BUFFER"),
        *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET", "APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS"),
    )
}
