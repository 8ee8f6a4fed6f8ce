"""What is sound of a variable that does not load, against a brute-force judgement of what is sound."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint.opcodes import memo_use
from tests.unit.checkpoint.conftest import file_of
from tests.unit.checkpoint.two_processes import KEY

numpy = pytest.importorskip("numpy")

_CLASSES = """
class Node:
    def __init__(self, label): self.label, self.links, self.more = label, [], {}
class Bad(Node):
    def __setstate__(self, state): raise ValueError('broken')
class Late:
    def __init__(self, value): self.value = value
    def __reduce__(self): return Late, (self.value,)
class Refuses:
    def __init__(self, value, *, fail=False):
        if fail: raise TypeError('refused')
        self.value = value
    def __reduce__(self): return again, (self.value,)
def again(value): return Refuses(value, fail=True)
"""


def _graph(dice: random.Random, classes: dict[str, Any]) -> dict[str, Any]:
    """Variables that refer to each other, cyclically too, through objects, lists, dicts, tuples, sets and calls."""
    nodes = [classes[dice.choice(["Node"] * 8 + ["Bad"])](f"n{i}") for i in range(14)]
    for node in nodes:
        for _ in range(dice.randrange(3)):
            other = dice.choice(nodes)
            match dice.randrange(7):
                case 0:
                    node.links.append(other)
                case 1:
                    node.more[f"k{dice.randrange(9)}"] = [other, "text"]
                case 2:
                    node.links.append((other, dice.choice(nodes)))
                case 3:
                    node.links.append(frozenset([other]))
                case 4:
                    node.links.append(classes["Late"](other))
                case 5:
                    node.links.append({other, 1})
                case 6 if dice.random() < 0.3:
                    node.links.append(classes["Refuses"](dice.choice(nodes)))
    return {f"v{i}": node for i, node in enumerate(nodes)}


def _reached(value: Any, classes: dict[str, Any]) -> dict[int, Any]:
    seen: dict[int, Any] = {}
    queue = [value]
    while queue:
        here = queue.pop()
        if id(here) in seen or isinstance(here, str | int):
            continue
        seen[id(here)] = here
        if isinstance(here, classes["Node"]):
            queue += [here.label, here.links, here.more]
        elif isinstance(here, classes["Late"] | classes["Refuses"]):
            queue.append(here.value)
        elif isinstance(here, dict):
            queue += here.values()
        elif isinstance(here, list | tuple | set | frozenset):
            queue += here
    return seen


def _drawing(value: Any, classes: dict[str, Any]) -> list[Any]:
    """The structure as comparable data: each object once, by number of first visit."""
    numbers: dict[int, int] = {}

    def draw(here: Any) -> Any:
        if isinstance(here, str | int):
            return here
        if id(here) in numbers:
            return ("seen", numbers[id(here)])
        numbers[id(here)] = len(numbers)
        if isinstance(here, classes["Node"]):
            return (type(here).__name__, here.label, draw(here.links), draw(here.more))
        if isinstance(here, classes["Late"]):
            return ("Late", draw(here.value))
        if isinstance(here, dict):
            return sorted((k, draw(v)) for k, v in here.items())
        if isinstance(here, set | frozenset):
            return (type(here).__name__, sorted((draw(i) for i in sorted(here, key=_label)), key=repr))
        return (type(here).__name__, [draw(i) for i in here])

    return [draw(value)]


def _label(value: Any) -> str:
    return str(getattr(value, "label", value))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_sound_comes_back_and_comes_back_right(
    seed: int, session: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """The law: a variable is lost exactly if it reaches something broken, and a restored one equals the saved one,
    identities included."""
    dice = random.Random(seed)
    classes = session(_CLASSES)
    variables = _graph(dice, classes)
    broken = (classes["Bad"], classes["Refuses"])
    checkpoint.save({**classes, **variables}, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={})
    back: dict[str, Any] = {"__name__": "__main__"}
    result = checkpoint.load(back, directory=str(tmp_path), id="c", key=KEY)
    lost = dict(result.lost)
    for name, value in variables.items():
        unsound = any(isinstance(item, broken) for item in _reached(value, classes).values())
        assert (name in lost) or not unsound, f"{name} reaches a broken object and was restored"
        assert name not in lost or unsound, f"{name} is sound and was lost: {lost[name]}"
        if name not in lost:
            assert _drawing(back[name], back) == _drawing(value, classes)
    sound = [name for name in variables if name not in lost]
    before = {
        id(variables[a]): {b for b in sound if variables[b] in _reached(variables[a], classes).values()} for a in sound
    }
    assert before  # else nothing was compared
    for a in sound:
        reached = _reached(back[a], back)
        for b in before[id(variables[a])]:
            assert id(back[b]) in reached, f"{a} and {b} share an object no more"


def test_damaged_arrays_take_no_other_array_with_them(tmp_path: Path) -> None:
    """They share their dtype and constructor, which the first one brings along."""
    arrays = {f"a{i}": numpy.full(20_000, float(i)) for i in range(6)}
    checkpoint.save(arrays, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={})
    for number in (0, 1, 4):
        digest = file_of(tmp_path, arrays[f"a{number}"].tobytes())
        digest.write_bytes(b"")
    back: dict[str, Any] = {}
    result = checkpoint.load(back, directory=str(tmp_path), id="c", key=KEY)
    assert set(dict(result.lost)) == {"a0", "a1", "a4"}
    assert all(numpy.array_equal(back[f"a{i}"], arrays[f"a{i}"]) for i in (2, 3, 5))


def test_memo_use_counts_as_the_unpickler_does() -> None:
    import io
    import pickle

    shared = ["x"] * 3
    objects = [[shared, {i: (str(i), shared) for i in range(400)}, b"b" * 300, "u" * 70_000, bytearray(5), 2**90, 1.5]]
    data = pickle.dumps(objects, protocol=5)
    reader = pickle.Unpickler(io.BytesIO(data))
    reader.load()
    use = memo_use(memoryview(data))
    assert use.made == len(reader.memo.copy())
    assert use.read
    assert max(use.read) < use.made
    with pytest.raises(ValueError, match="unexpected opcode"):
        memo_use(memoryview(b"\x80\x05cos\nsystem\n."))
