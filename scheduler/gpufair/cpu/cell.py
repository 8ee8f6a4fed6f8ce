"""A cell of a notebook, run in the pool: which variables it needs, and what it assigned."""

from __future__ import annotations

import ast
import asyncio
import builtins
import dis
import hashlib
import importlib
import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpufair.cpu import worker
from gpufair.cpu.errors import NotForThePool, Unpicklable
from gpufair.cpu.parcel import Parcel, pack

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in a notebook
_IPYTHON = frozenset({"get_ipython", "display", "In", "Out"})


@dataclass(frozen=True)
class Names:
    """What a cell reads that it may not have assigned itself, and what it assigns and deletes; sorted."""

    read: tuple[str, ...]
    assigned: tuple[str, ...]


def names(source: str) -> Names:
    """The global names of ``source``, found from its compiled code.

    Raises:
        SyntaxError: It is no Python.
    """
    read, assigned = set[str](), set[str]()
    for code, nested in _codes(compile(source, "<cell>", "exec", _AWAIT), nested=False):
        for step in dis.get_instructions(code):
            if step.opname in {"LOAD_NAME", "LOAD_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"}:
                read.add(str(step.argval))
            if step.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"} or (step.opname in {"STORE_NAME", "DELETE_NAME"} and not nested):
                assigned.add(str(step.argval))
    return Names(tuple(sorted(read)), tuple(sorted(assigned)))


def _codes(code: types.CodeType, *, nested: bool) -> Iterator[tuple[types.CodeType, bool]]:
    yield code, nested
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant, nested=True)


@dataclass(frozen=True)
class Came:
    """What a cell left: values of names, names of modules it imported, names it deleted, and its last expression."""

    values: dict[str, Any]
    modules: dict[str, str]
    deleted: tuple[str, ...]
    shown: Any


def send(source: str, namespace: dict[str, Any], pool: Any) -> Any:
    """Hand a cell with the variables that it needs to the pool; the task's outcome is for ``take``.

    Raises:
        NotForThePool: It uses what only the kernel has.
        Unpicklable: Names the variable that cannot travel.
    """
    found = names(source)
    if asked := sorted(_IPYTHON & set(found.read) - set(found.assigned)):
        raise NotForThePool(
            f"it uses {', '.join(asked)} (magics and ! commands do so too), which belongs to the notebook; use print and plain Python"
        )
    values = {name: namespace[name] for name in found.read if name in namespace and name != "__builtins__"}
    needed: list[Any] = []
    inner = pool.pack(values, namespace, needed=needed)
    call = pack({"function": run_cell, "arguments": (source, found.assigned, inner), "keywords": {}})
    if (large := pool.too_large("this cell", call)) is not None:
        print(large + _largest(values), file=sys.stderr)  # noqa: T201 - under the cell; a warning would name a line of ours
    return pool.hand(call, "cell", needed)


def _largest(values: dict[str, Any]) -> str:
    sizes = sorted(((int(getattr(value, "nbytes", 0) or 0), name) for name, value in values.items()), reverse=True)[:3]
    told = ", ".join(f"{name} {size / 1e6:,.0f} MB" for size, name in sizes if size >= 1e6)
    return f". The largest variables: {told}" if told else ""


def run_cell(source: str, assigned: tuple[str, ...], inner: Parcel) -> Parcel:
    """On a worker: run the cell in a namespace of its own, and pack what it left."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    namespace.update(inner.open(namespace))
    file = f"<%%cpu {hashlib.sha256(source.encode()).hexdigest()[:8]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for tracebacks, later ones too
    tree = ast.parse(source, file)
    end = tree.body[-1] if tree.body else None
    last = end if isinstance(end, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    shown = None
    runner = asyncio.Runner()  # one loop for both parts, which is made when something is awaited
    try:
        _ran(compile(tree, file, "exec", _AWAIT), namespace, runner)
        if last is not None:
            shown = _ran(compile(ast.Expression(last.value), file, "eval", _AWAIT), namespace, runner)
    finally:
        runner.close()
    left = {name: namespace[name] for name in assigned if name in namespace}
    modules = {name: value.__name__ for name, value in left.items() if isinstance(value, types.ModuleType)}
    values = {name: value for name, value in left.items() if name not in modules}
    deleted = tuple(name for name in assigned if name not in namespace)
    pack(values, namespace, bare=True)  # so that an error names the variable
    try:
        return pack({"came": Came(values, modules, deleted, shown)}, namespace, bare=True)
    except Unpicklable:
        return pack({"came": Came(values, modules, deleted, _Text(repr(shown)))}, namespace, bare=True)


def _ran(code: types.CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> Any:
    value = eval(code, namespace)  # noqa: S307 - it is what the user asked for
    return runner.run(value) if code.co_flags & inspect.CO_COROUTINE else value


class _Text(str):
    """The text of a value that cannot travel; shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def take(outcome: worker.Outcome, namespace: dict[str, Any]) -> Any:
    """Put what a cell assigned into ``namespace``; returns its last expression. A failed cell changes nothing."""
    came: Came = worker.opened(outcome).open(namespace)["came"]
    for name, module in came.modules.items():
        try:
            namespace[name] = importlib.import_module(module)
        except ImportError as err:
            print(f"{name} is not brought back: {err}")  # noqa: T201 - under the cell
    namespace.update(came.values)
    for name in came.deleted:
        namespace.pop(name, None)
    return came.shown
