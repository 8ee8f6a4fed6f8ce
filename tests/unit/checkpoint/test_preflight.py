"""What a checkpoint would be like: truthful, bounded in time, and without a change to anything."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import gpufair
from gpufair.node.checkpoint import preflight as module
from gpufair.node.checkpoint.preflight import look


def _states(**namespace: Any) -> dict[str, str]:
    return {one.name: one.state for one in look(namespace).variables}


def test_each_variable_has_its_colour_size_and_seconds() -> None:
    namespace = {
        "big": np.zeros(2_000_000),
        "text": "x" * 1000,
        "lock": threading.Lock(),
        "holder": {"inner": [threading.Lock()]},
        "gen": (i for i in range(3)),
        "_12": "the shell's own",
    }
    found = look(namespace, bytes_per_s=16e6)
    by_name = {one.name: one for one in found.variables}
    assert [one.state for one in found.variables] == ["red"] * 3 + ["green"] * 2
    assert set(by_name) == {"big", "text", "lock", "holder", "gen"}
    assert 16_000_000 <= by_name["big"].size_bytes < 16_001_000
    assert by_name["big"].seconds == pytest.approx(1.0, rel=0.01)
    assert 1000 <= by_name["text"].size_bytes < 1100
    assert "create it after the restore" in by_name["lock"].reason
    assert "inner" in by_name["holder"].reason
    assert (found.parkable, found.measured) == (False, True)
    assert found.size_bytes == sum(one.size_bytes for one in found.variables)
    assert next(namespace["gen"]) == 0, "nothing was consumed"  # type: ignore[call-overload]
    assert "would lose 3 of 5 variables" in found.sentence
    assert "lock" in str(found)
    assert "<code>holder</code>" in found._repr_html_()


def test_what_shares_an_object_with_a_red_one_is_red_too() -> None:
    shared = [threading.Lock()]
    assert _states(a=shared, b=[shared], c=1) == {"a": "red", "b": "red", "c": "green"}


def test_what_is_shared_is_counted_once() -> None:
    big = np.zeros(1_000_000)
    found = look({"a": big, "b": big, "c": [big, big]})
    assert 8_000_000 <= found.size_bytes < 8_010_000


class Prepares:
    """Can be saved once it has been parked."""

    def __init__(self) -> None:
        self.lock: Any = threading.Lock()
        self.parked = 0

    def __gpufair_park__(self) -> None:
        self.parked += 1
        self.lock = None


class Slow:
    """Takes its time to be pickled."""

    def __reduce__(self) -> Any:
        time.sleep(0.05)
        return Slow, ()


def test_what_prepares_itself_or_was_not_reached_is_in_doubt() -> None:
    one = Prepares()
    found = look({"one": one})
    assert (found.variables[0].state, found.parkable) == ("amber", True)
    assert "prepares itself" in found.variables[0].reason
    assert one.parked == 0, "a look prepares nothing"
    begun = time.monotonic()
    found = look({f"v{n}": Slow() for n in range(1000)}, within_s=0.2)
    assert time.monotonic() - begun < 3
    states = [one.state for one in found.variables]
    assert states.count("amber") > 900
    assert states.count("green") > 0
    assert found.as_dict(limit=10)["left_out"] == 990


def test_a_large_variable_deserves_a_look() -> None:
    found = look({"big": np.zeros(1_000_000)}, bytes_per_s=1000.0)
    assert found.variables[0].state == "amber"
    assert "computed again" in found.variables[0].reason


def test_outside_a_session_the_main_module_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "vars", lambda _: {"x": 5}, raising=False)
    assert [one.name for one in gpufair.preflight().variables] == ["x"]
