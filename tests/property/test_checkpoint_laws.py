"""restore(checkpoint(s)) = s for supported state, and otherwise a named loss (P19)."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.node import checkpoint

KEY = b"the key of one user, 32 bytes ok"

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.binary(max_size=40),
    st.decimals(allow_nan=False, allow_infinity=False).map(Decimal),
    st.fractions().map(Fraction),
    st.datetimes().map(lambda one: one.replace(tzinfo=UTC)),
)
KEYS = st.one_of(st.integers(-9, 9), st.text(max_size=4), st.tuples(st.integers(0, 3), st.text(max_size=2)))
VALUES = st.recursive(
    st.one_of(ATOMS, st.binary(max_size=30).map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
        st.lists(inner, max_size=3).map(deque),
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(("a", "b", "model", "data_2", "x", "y"))


def unsupported(kind: int) -> object:
    """Something that belongs to its process."""
    return (threading.Lock(), (one for one in "abc"), memoryview(b"abc"), sys._getframe(), threading.local())[kind % 5]


def moved(namespace: dict[str, Any]) -> tuple[dict[str, Any], checkpoint.RestoreResult]:
    """The namespace as another process would find it."""
    with TemporaryDirectory() as folder:
        checkpoint.save(namespace, directory=folder, id="c", sequence=1, key=KEY, meta={})
        other: dict[str, Any] = {"__name__": "__main__"}
        result = checkpoint.load(other, directory=folder, id="c", key=KEY)
    return {name: value for name, value in other.items() if not name.startswith("__")}, result


def parts(
    value: object, path: tuple[object, ...] = (), seen: frozenset[int] = frozenset()
) -> Iterator[tuple[tuple[object, ...], object]]:
    """A value and everything mutable in it, by where it is."""
    yield path, value
    if id(value) in seen:
        return
    seen |= {id(value)}
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from parts(inner, (*path, key), seen)
    elif isinstance(value, list | tuple | deque):
        for index, inner in enumerate(value):
            yield from parts(inner, (*path, index), seen)


def same_objects(namespace: dict[str, Any]) -> dict[tuple[object, ...], tuple[object, ...]]:
    """For each place of something mutable, the first place where the same object is."""
    first: dict[int, tuple[object, ...]] = {}
    found = {}
    for path, value in parts(dict(sorted(namespace.items()))):
        if isinstance(value, list | dict | set | bytearray | deque) and path:
            found[path] = first.setdefault(id(value), path)
    return found


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_p19_what_is_restored_is_what_was_saved(namespace: dict[str, Any]) -> None:
    """Values, types and nothing else; nothing is lost."""
    found, result = moved(namespace)
    assert found == namespace
    assert [type(found[name]) for name in namespace] == [type(value) for value in namespace.values()]
    assert result.lost == ()
    assert sorted(result.restored) == sorted(namespace)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=2, max_size=5))
def test_p19_what_was_one_object_is_one_object_again(namespace: dict[str, Any], picks: list[int]) -> None:
    """Also where it is in two variables, in a container of another variable, or in itself."""
    values = list(namespace.values())
    namespace["both"] = [values[pick % len(values)] for pick in picks]
    namespace["again"] = namespace["both"]
    namespace["both"].append({"me": namespace["both"]} if picks[0] % 2 else 1)
    found, result = moved(namespace)
    assert same_objects(found) == same_objects(namespace)
    assert found["again"] is found["both"]
    assert result.lost == ()


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=3),
)
def test_p19_what_cannot_be_saved_is_named_and_costs_nothing_else(
    namespace: dict[str, Any], odd: list[tuple[int, bool]]
) -> None:
    """Never quietly something else, and never the neighbours."""
    lost = {f"odd{number}": unsupported(kind) for number, (kind, _) in enumerate(odd)}
    for (name, value), (_, wrapped) in zip(tuple(lost.items()), odd, strict=True):
        lost[name] = {"deep": [value]} if wrapped else value
    found, result = moved({**namespace, **lost})
    assert found == namespace
    assert {name for name, _ in result.lost} == set(lost)
    assert all(why for _, why in result.lost)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), st.integers(0, 10**6))
def test_p19_damage_is_never_read_as_something_else(namespace: dict[str, Any], where: int) -> None:
    """One flipped bit anywhere: what comes back is what was saved, or is refused by name."""
    with TemporaryDirectory() as folder:
        checkpoint.save(namespace, directory=folder, id="c", sequence=1, key=KEY, meta={})
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and path.stat().st_size)
        file = files[where % len(files)]
        data = bytearray(file.read_bytes())
        data[where % len(data)] ^= 1 << (where % 8)
        file.write_bytes(data)
        other: dict[str, Any] = {}
        try:
            result = checkpoint.load(other, directory=folder, id="c", key=KEY)
        except (checkpoint.CheckpointRejected, checkpoint.CheckpointMissing):
            return
    for name, _ in result.lost:
        other[name] = namespace[name]
    assert {name: other[name] for name in namespace} == namespace


def test_p19_the_strategies_reach_losses_and_cycles() -> None:
    """A few by hand, so that the laws above are known to look at something."""
    ring: list[Any] = [1]
    ring.append(ring)
    found, result = moved({"ring": ring, "lock": threading.Lock(), "when": datetime(2026, 1, 1, tzinfo=UTC)})
    assert found["ring"][1] is found["ring"]
    assert [name for name, _ in result.lost] == ["lock"]
    with pytest.raises(KeyError):
        found["lock"]
