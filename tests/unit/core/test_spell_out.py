"""What is written out for the compiler: constructors are those that ``dataclass`` makes, and nothing is lost."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NewType, get_type_hints

import pytest

from gpufair.core import COMPILED
from gpufair.core.model import Kind, Shape, WorkloadSpec
from gpufair.core.record import Record
from gpufair.core.units import AllocationPath, Instant, Millis, WorkloadId
from spell_out import spelled_out

pytestmark = pytest.mark.skipif(
    COMPILED, reason="LEFT OUT: the sources themselves are asked, and here is a compiled core"
)
MODULES = ("actions", "amount", "events", "ledger", "model", "record", "share", "tree")
SPEC = WorkloadSpec(AllocationPath("a"), "ada", Kind.BATCH, Shape(1), Millis(1_000))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[ModuleType, ModuleType]:
    """A module of the core, and the same written out, as plain Python."""
    original = import_module(f"gpufair.core.{request.param}")
    module = ModuleType(f"written_{request.param}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(spelled_out(inspect.getsource(original)), module.__name__, "exec"), module.__dict__)
    return original, module


@pytest.mark.parametrize("written", MODULES, indirect=True)
def test_they_take_the_same(written: tuple[ModuleType, ModuleType]) -> None:
    """Names, order and defaults; and each is one of its own."""
    original, module = written
    spelled = 0
    for name, one in vars(original).items():
        if dataclasses.is_dataclass(one) and isinstance(one, type) and one.__module__ == original.__name__:
            other = getattr(module, name)
            ours, theirs = (inspect.signature(each).parameters for each in (one, other))
            assert [str(each) for each in ours.values()] == [str(each) for each in theirs.values()]
            spelled += other.__init__.__qualname__ == f"{name}.__init__" and "__reduce__" in vars(other)
    assert spelled


@pytest.mark.parametrize("written", ["record"], indirect=True)
def test_they_set_the_same(written: tuple[ModuleType, ModuleType]) -> None:
    """And a copy has all of it."""
    fields = WorkloadId("w"), SPEC, Instant(5)
    record, other = Record(*fields, starts=3), written[1].Record(*fields, starts=3)
    assert all(getattr(other, one.name) == getattr(record, one.name) for one in dataclasses.fields(Record))
    made, values = other.__reduce__()
    assert made(*values) == other


@pytest.mark.parametrize("written", ["record"], indirect=True)
def test_no_line_gets_another_number(written: tuple[ModuleType, ModuleType]) -> None:
    """Traces of the compiled core point into the sources as they are."""
    original, module = written
    assert inspect.unwrap(module.view).__code__.co_firstlineno == inspect.getsourcelines(original.view)[1]


@pytest.mark.parametrize("written", [*MODULES, "units", "waiting"], indirect=True)
def test_they_tell_the_same(written: tuple[ModuleType, ModuleType]) -> None:
    """Annotations and docstrings are those of the sources, also of what ``dataclass`` keeps for itself."""
    original, module = written
    for name, one in vars(original).items():
        other: Any = getattr(module, name, None)
        if isinstance(one, NewType):
            assert other.__module__ in (one.__module__, module.__name__)
        elif isinstance(one, type) and one.__module__ == original.__name__:
            assert other.__doc__ == one.__doc__
            assert get_type_hints(other).keys() == get_type_hints(one).keys()
            if dataclasses.is_dataclass(one):
                ours, theirs = (dataclasses.fields(each) for each in (one, other))
                assert [(each.name, each.type) for each in theirs] == [(each.name, each.type) for each in ours]


def test_what_mypyc_loses_is_put_back() -> None:
    """It keeps the outermost class of an annotation, and the members of an enumeration are no annotations."""
    source = '"""M."""\nclass A(Enum):\n    """One."""\n    X: Final = "x"\n\n\nclass B:\n    x: list[int]\n\n\nC = NewType("C", int)\n'
    assert "_put_back({A: {'X': 'Final'}, B: {'x': 'list[int]'}}, {A: 'One.'}, ('C',))" in spelled_out(source)
    assert spelled_out(source).startswith(source)
    assert spelled_out("x = 1\n") == "x = 1\n"


def test_factories_are_left_to_dataclass() -> None:
    """They are made anew with each."""
    source = "@dataclass\nclass A:\n    x: list[int] = field(default_factory=list)\n"
    assert spelled_out(source).startswith(source)
    assert "def __init__" not in spelled_out(source)


def test_what_cannot_be_done_is_said() -> None:
    """Rather than half a constructor."""
    with pytest.raises(ValueError, match=r"A has the base B"):
        spelled_out("@dataclass\nclass A(B):\n    x: int\n\n\n")
    with pytest.raises(ValueError, match=r"A is not followed by two blank lines"):
        spelled_out("@dataclass\nclass A:\n    x: int\ny = 1\n")
