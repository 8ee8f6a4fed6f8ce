"""Running a cell again to get back a variable that cannot be saved. Off until the notebook says ``%gpufair replay on``.

A cell is run again after a restore only if all of this is certain:

- every variable that it sets is lost, so that nothing which came back is overwritten;
- no later cell mentions one of them: a generator that was read from elsewhere is not where it began;
- what the cell reads was the same, byte for byte when pickled, when the session was saved as when the cell had run;
- it is plain Python, without magics and without top-level ``await``, and it ended without an error.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpufair.workload import preemption

LIMIT_S = 60.0  # of all cells that are run again after one restore
_LOOK_S = 0.1
_MAX_BYTES = 4 << 20  # of what a cell reads, pickled; more is not compared, and the cell not run again
_MAX_CODE = 1 << 16


@dataclass(frozen=True, slots=True)
class Recipe:
    """A cell and what it sets. ``reads`` are digests of its inputs after it had run."""

    number: int
    source: str
    sets: tuple[str, ...]
    reads: tuple[tuple[str, str], ...]


class Recipes:
    """Of one session. Main thread, between cells."""

    def __init__(self) -> None:
        self.on = False
        self._recipes: dict[str, Recipe] = {}  # by each variable that its cell sets

    def ran(self, source: str, number: int, namespace: dict[str, Any], *, ok: bool) -> None:
        """A cell has ended. ``source`` is its Python text, as IPython has made it."""
        if not self.on:
            return
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            self._recipes.clear()  # a cell with await, say: what it did is not known
            return
        sets = tuple(dict.fromkeys(_set_by(tree.body)))
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(sets)
        for recipe in {self._recipes[name] for name in named if name in self._recipes}:
            self._forget(recipe)
        plain = ok and len(source) <= _MAX_CODE and "get_ipython" not in named
        if not (plain and sets and self._unsavable(namespace, sets)):
            return
        reads = sorted(name for name in named - set(sets) if name in namespace and not hasattr(builtins, name))
        digests = _digests(namespace, reads)
        if digests is not None:
            recipe = Recipe(number, source, sets, digests)
            self._recipes |= dict.fromkeys(sets, recipe)

    def saved(self, namespace: dict[str, Any]) -> list[tuple[int, str, tuple[str, ...]]]:
        """For a checkpoint: (number, source, what it sets) of the cells whose inputs are as they were."""
        return [
            (recipe.number, recipe.source, recipe.sets)
            for recipe in sorted(set(self._recipes.values()), key=lambda one: one.number)
            if _digests(namespace, [name for name, _ in recipe.reads]) == recipe.reads
        ]

    def _forget(self, recipe: Recipe) -> None:
        for name in recipe.sets:
            if self._recipes.get(name) is recipe:
                del self._recipes[name]

    def _unsavable(self, namespace: dict[str, Any], names: Iterable[str]) -> bool:
        from gpufair.node.checkpoint.preflight import RED, look  # noqa: PLC0415 - not needed at the start of a kernel

        verdicts = look(namespace, set(names), within_s=_LOOK_S).variables
        return bool(verdicts) and all(one.state == RED for one in verdicts)


def replay(
    recipes: Iterable[tuple[int, str, tuple[str, ...]]], lost: dict[str, str], namespace: dict[str, Any]
) -> list[str]:
    """Run again what can be; what came back leaves ``lost``. What was done, in sentences."""
    said = []
    for number, source, sets in recipes:
        if not sets or not set(sets) <= set(lost):
            continue
        code = compile(source, f"<cell [{number}], run again>", "exec")
        problem = preemption.call(lambda: exec(code, namespace), LIMIT_S)  # noqa: B023, S102 - the user's own cell, now
        names = ", ".join(sets)
        if problem is None:
            said.append(f"cell [{number}] was run again, for {names}")
            for name in sets:
                lost.pop(name, None)
        else:
            said.append(f"cell [{number}] was run again for {names} and failed: {problem}")
            for name in sets:
                namespace.pop(name, None)
    return said


def _set_by(body: Iterable[ast.AST]) -> Iterator[str]:
    """Variables of the notebook that these statements set, in the order of the text. Importing again does no harm."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        if not isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            yield from _set_by(ast.iter_child_nodes(node))


class _Bounded(io.RawIOBase):
    """Digests what is written, up to a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.digest, self._left = hashlib.sha256(), _MAX_BYTES

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise OverflowError
        self.digest.update(data)
        return size


def _digests(namespace: dict[str, Any], names: Iterable[str]) -> tuple[tuple[str, str], ...] | None:
    """Digests of variables, by name; None if one is gone, too large or cannot be pickled."""
    import cloudpickle  # noqa: PLC0415 - not needed at the start of a kernel

    found = []
    for name in names:
        into = _Bounded()
        try:
            cloudpickle.Pickler(into, protocol=5).dump(namespace[name])
        except Exception:  # noqa: BLE001 - the user's reducers may raise anything
            return None
        found.append((name, into.digest.hexdigest()))
    return tuple(found)
