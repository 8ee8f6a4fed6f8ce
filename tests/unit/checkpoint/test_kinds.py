"""Which kinds of objects survive a move to another process: see ``kinds`` for the table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.checkpoint.kinds import TITLES, kinds_of, missing
from tests.unit.checkpoint.kinds.page import PAGE, renewed
from tests.unit.checkpoint.two_processes import TwoProcesses

ROWS = [pytest.param(group, kind, id=f"{group}: {kind}") for group in TITLES for kind in kinds_of(group)]
TWO_CPUS = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

Moved = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    """Give what came of a group: all its kinds in one session, saved once and restored in another process."""
    answers: dict[str, dict[str, Any]] = {}

    def of(group: str) -> dict[str, Any]:
        if absent := missing(group):
            why = f"{', '.join(absent)} not installed"
            known = absent == ["torch"] and sys.version_info >= (3, 12)  # see pyproject.toml
            if os.environ.get("GPUFAIR_REQUIRE_ALL") == "1" and not known:
                pytest.fail(why)
            pytest.skip(why)
        if group not in answers:
            answers[group] = {"answers": {}, "lost": "the session could not be made or moved"}  # should the next fail
            place = TwoProcesses(tmp_path_factory.mktemp(group) / "place")
            kinds = kinds_of(group)
            saved = place.save(*(cell for cell, _ in kinds.values()), **TWO_CPUS)
            restored = place.restore({name: check for name, (_, check) in kinds.items()}, **TWO_CPUS)
            answers[group] = {**restored, "saved": saved}
        return answers[group]

    return of


@pytest.mark.parametrize(("group", "kind"), ROWS)
def test_a_kind_survives_the_move(group: str, kind: str, moved: Moved) -> None:
    answer = moved(group)
    assert answer["answers"].get(kind) == "ok", answer["lost"]


@pytest.mark.parametrize("group", TITLES)
def test_nothing_else_is_lost(group: str, moved: Moved) -> None:
    """The generator that a function of the table mentions is: it is there for that."""
    assert list(moved(group)["lost"]) == (["stream"] if group == "python" else [])


def test_the_documentation_says_what_is_tested() -> None:
    """``python -m tests.unit.checkpoint.kinds`` writes it anew."""
    assert PAGE.read_text() == renewed(PAGE.read_text())
    assert len(ROWS) >= 60
