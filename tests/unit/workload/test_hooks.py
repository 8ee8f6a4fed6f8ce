"""Functions and hooks of the user's: called in order, in time, and harmless when they fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import gpufair
from gpufair.workload import hooks, preemption


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "_functions", {})


class Link:
    """Open until it is parked."""

    def __init__(self, problem: str = "") -> None:
        self.open, self.problem = True, problem

    def __gpufair_park__(self) -> None:
        if self.problem:
            raise OSError(self.problem)
        self.open = False

    def __gpufair_unpark__(self) -> None:
        if self.problem:
            raise OSError(self.problem)
        self.open = True


def test_outside_a_session_nothing_happens() -> None:
    assert gpufair.safe_point() is False
    assert list(gpufair.resumable("ab")) == ["a", "b"]


def test_functions_run_in_order_and_one_of_a_name_replaces_the_other() -> None:
    log = []

    def cell(text: str) -> Callable[[], None]:
        def first() -> None:
            log.append(text)

        return gpufair.on_preempt(first)

    @gpufair.on_preempt
    def second() -> None:
        log.append("second")

    cell("first, old")
    cell("first, new")
    assert preemption.call_all(5.0) == []
    assert log == ["second", "first, new"]
    with pytest.raises(TypeError, match="a function without arguments"):
        gpufair.on_preempt(5)  # type: ignore[type-var]


def test_what_fails_or_takes_too_long_is_named_and_the_others_run() -> None:
    log = []

    @gpufair.on_preempt
    def fails() -> None:
        raise ValueError("no disk")

    @gpufair.on_preempt
    def stays() -> None:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                log.append("swallowed")

    @gpufair.on_preempt
    def late() -> None:
        log.append("late")

    begun = time.monotonic()
    failed = dict(preemption.call_all(0.3))
    assert time.monotonic() - begun < 5
    names = {name.rsplit(".", 1)[-1]: reason for name, reason in failed.items()}
    assert names["fails"] == "ValueError: no disk"
    assert names["stays"].startswith("it was stopped after 0.")
    assert names["late"] == "no time was left for it"
    assert log == []
    time.sleep(0.01)  # no signal is under way any more


def test_objects_are_found_in_variables_and_containers_and_parked_once() -> None:
    link = Link()
    deep = [{"a": (link, Link())}]
    namespace: dict[str, Any] = {"link": link, "deep": deep, "other": 5, "loop": deep}
    deep.append(deep)  # type: ignore[arg-type]
    found = hooks.hooked(namespace)
    assert [(name, value is link) for name, value in found] == [("link", True), ("deep", False)]
    parked = hooks.Parked(namespace, 5.0)
    assert parked.failed == {}
    assert [value.open for _, value in found] == [False, False]
    assert parked.unpark(5.0) == {}
    assert [value.open for _, value in found] == [True, True]
    link.open = False
    assert parked.unpark(5.0) == {}
    assert not link.open, "taken up again once"


def test_a_hook_that_fails_costs_its_variables_only() -> None:
    bad = Link("gone")
    namespace: dict[str, Any] = {"a": bad, "b": bad, "c": Link(), "x": 1}
    parked = hooks.Parked(namespace, 5.0)
    reason = "__gpufair_park__ of Link failed: OSError: gone"
    assert parked.failed == {"a": reason, "b": reason}
    failed = hooks.unpark_restored(namespace, ["a", "b", "c"], 5.0)
    assert set(failed) == {"a", "b"}
    assert set(namespace) == {"c", "x"}
    assert namespace["c"].open


def test_classes_and_large_containers_are_no_places_for_hooks() -> None:
    assert hooks.hooked({"Link": Link, "many": [Link()] * 100_000}) == []
