"""A loop goes on after its last finished item: once, for each of its kinds, and never with an item left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpufair import resumable
from gpufair.workload import loops, runtime
from gpufair.workload.loops import NotRepeatable, Positions


class Cut(Exception):
    """The preemption of a test."""


class Kernel:
    """Takes a checkpoint at chosen safe points: the variables and the positions, as they are then."""

    def __init__(self, namespace: dict[str, Any], at: int) -> None:
        self.variables, self.at = namespace, at
        self.count = 0
        self.kept: tuple[dict[str, Any], dict[str, int]] | None = None

    def safe_point(self) -> bool:
        self.count += 1
        if self.count == self.at:
            copy = {k: list(v) if isinstance(v, list) else v for k, v in self.variables.items()}
            self.kept = (copy, loops.positions.saved())
            raise Cut
        return False

    def namespace(self) -> dict[str, Any]:
        return self.variables

    def preflight(self, within_s: float) -> Any:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "positions", Positions())
    monkeypatch.setattr(runtime, "_current", [])


def _cell(out: list[Any], rows: int, broken: int) -> None:
    """Nested loops, one left by break, one after the other; run again it must give the same in total."""
    out.extend("before" for _ in resumable(range(2), "before"))
    for row in resumable(range(rows), "outer"):
        out.extend((row, column) for column in resumable([10, 20, 30], "inner"))
        out.extend((row, letter) for letter in resumable((c for c in "abcdef"), "generator"))
        if row == broken:
            break
    out.extend("after" for _ in resumable(range(2), "after"))


@pytest.mark.parametrize("seed", range(20))
def test_a_cell_that_is_cut_at_any_safe_points_and_run_again_does_each_thing_once(seed: int) -> None:
    draw = random.Random(seed)
    rows = draw.randrange(1, 4)
    broken = rows + 1  # a break is the one thing that repeats its last item
    whole: list[Any] = []
    _cell(whole, rows, broken)
    loops.positions.cell_ended(cut=False)
    variables: dict[str, Any] = {"out": []}
    for _ in range(200):
        kernel = Kernel(variables, draw.randrange(1, 15))
        runtime.attach(kernel)
        try:
            _cell(variables["out"], rows, broken)
        except Cut:
            assert kernel.kept is not None
            variables, saved = kernel.kept
            loops.positions = Positions()  # another process
            loops.positions.restore(saved)
        else:
            break
    else:
        raise AssertionError(f"no progress, seed {seed}")
    assert variables["out"] == whole, f"seed {seed}"


def test_a_loop_left_by_break_runs_its_last_item_again() -> None:
    out: list[Any] = []
    runtime.attach(Kernel({}, at=10_000))
    for number in resumable(range(10), "a"):
        out.append(number)
        if number == 3:
            break
    saved = loops.positions.saved()
    loops.positions.restore(saved)
    again = []
    for number in resumable(range(10), "a"):
        again.append(number)
        break
    assert again == [3]


def test_a_loop_begins_anew_after_a_cell_that_ended_by_itself() -> None:
    list(resumable(range(3), "a"))
    assert loops.positions.saved() == {"a": loops.DONE}
    loops.positions.cell_ended(cut=False)
    assert loops.positions.saved() == {}
    assert list(resumable(range(3), "a")) == [0, 1, 2]


def test_a_position_is_used_once_and_kept_until_then() -> None:
    loops.positions.restore({"a": 2, "b": 1})
    assert list(resumable(range(3), "a")) == [2]
    loops.positions.cell_ended(cut=False)
    assert loops.positions.saved() == {"b": 1}, "what has not run yet is saved on"
    assert list(resumable(range(3), "a")) == [0, 1, 2]


def test_without_a_name_the_place_in_the_text_counts() -> None:
    source = "one = resumable([1])\ntwo = resumable([2])"
    places = []
    for folder in ("/tmp/ipykernel_1", "/tmp/ipykernel_2"):
        names: dict[str, Any] = {"resumable": resumable}
        exec(compile(source, f"{folder}/1234.py", "exec"), names)
        places.append((names["one"].name, names["two"].name))
    assert places[0] == places[1], "the same cell in another process"
    assert places[0][0] != places[0][1]
    assert len(resumable(range(7))) == 7


def test_an_iterator_of_the_sessions_own_is_refused() -> None:
    """Restored, it would stand at its place already, and be run forward once more."""
    lines = iter("abc")
    runtime.attach(Kernel({"lines": lines}, at=1))
    with pytest.raises(NotRepeatable, match="pass what it was made from"):
        resumable(lines)
    resumable(iter("abc"))
