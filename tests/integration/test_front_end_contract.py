"""One shape in Python, in the front end's types and in the fake that the browser tests run against.

The types are made of the classes (``labextension/wire_types.py``); that samples of each fit both is shown here and in
``labextension/test/answers.test.mjs``, for the same files.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpufair.cli import whatif as played
from gpufair.client.json_schema import REF, components
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Node, Policy, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, AllocationPath, CauseId, Instant, NodeName, WorkloadId
from gpufair.sim.whatif import NONE, Change, whatif, with_shares
from jupyter_gpufair import answers, wish
from jupyter_gpufair.handlers import ACTIONS
from jupyter_gpufair.overview import LAB_EVENT
from jupyter_gpufair.view import SESSION_EVENT, SESSION_SCHEMA
from tests.e2e import fake_sessions

START = Instant(1_800_000_000_000)
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "labextension" / "src"
WIRE = (SOURCE / "wire.ts").read_text(encoding="utf-8")
SAMPLES = json.loads((ROOT / "tests" / "data" / "lab_answers.json").read_text(encoding="utf-8"))


def _types() -> Any:
    spec = importlib.util.spec_from_file_location("wire_types", ROOT / "labextension" / "wire_types.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def errors_of(kind: type, value: object) -> list[str]:
    """What is wrong with ``value`` as an answer of this kind; a field that is not described is wrong."""
    closed = {name: schema | {"additionalProperties": False} for name, schema in components([kind]).items()}
    schema = {"$ref": f"{REF}{kind.__name__}", "components": {"schemas": closed}}
    return [f"{list(error.absolute_path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(value)]


def test_the_front_ends_types_are_those_of_the_answers() -> None:
    """A field renamed on one side only would show as `undefined`, in front of a person."""
    assert _types().written() == (SOURCE / "answers.ts").read_text(encoding="utf-8"), (
        "run `.venv/bin/python labextension/wire_types.py`, and see with `npm test` whether the front end still fits"
    )
    union = re.search(r"export type Action =(.*?);", WIRE, re.DOTALL)
    assert union is not None
    assert set(re.findall(r"'(\w+)'", union[1])) == set(ACTIONS)
    assert f"'{SESSION_EVENT}'" in WIRE
    assert f"'{LAB_EVENT}'" in (SOURCE / "lab" / "wire.ts").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_the_server_are_answers(name: str) -> None:
    """Those that the front end's tests are made with."""
    assert errors_of(getattr(answers, name), SAMPLES[name]) == []


def test_every_answer_of_the_server_has_a_sample() -> None:
    """A new one gets one, and is seen by both sides."""
    roots = {kind.__name__ for kind in _types().ROOTS if kind.__module__ == answers.__name__}
    assert roots == set(SAMPLES)


def test_hours_that_are_played_are_told_as_promised() -> None:
    """`gpufair whatif --json`, which the server hands on."""
    state = State(Policy())
    teams = tuple(Allocation(AllocationPath(team)) for team in ("a", "b"))
    state.handle(ev.BudgetsApplied(START, CauseId("t"), teams))
    state.handle(ev.NodeJoined(START, CauseId("t"), Node(NodeName("n1"), 2)))
    spec = WorkloadSpec(AllocationPath("a"), "ada", Kind.BATCH, Shape(1), HOUR, expected=HOUR)
    state.handle(ev.Submitted(START, CauseId("t"), WorkloadId("w1"), spec))
    found = played._plain(whatif(state, Change(with_shares(teams, {AllocationPath("a"): "3"})), 2, NONE))
    assert errors_of(answers.WhatIf, found) == []
    assert [one["path"] for one in found["allocations"]] == ["a", "b"]


def test_the_fake_has_the_shape_of_the_real_one() -> None:
    """The browser tests prove something only as long as the fake answers like the server."""
    assert errors_of(answers.Session, {"kernel_id": "k", **fake_sessions.SESSION}) == []
    assert set(SAMPLES["Session"]) == set(SESSION_SCHEMA["properties"]) == set(SESSION_SCHEMA["required"])


def test_a_notebook_asks_for_what_is_read() -> None:
    """The dialog writes, the provisioner reads; both write and read the same names."""
    found = re.search(r"export interface IWish {\n(.*?)\n}", (SOURCE / "lab" / "wire.ts").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert {name.removesuffix("?") for name in re.findall(r"^  (\w+\??): ", found[1], re.MULTILINE)} == set(wish._KINDS)
    launch = (SOURCE / "lab" / "launch.ts").read_text(encoding="utf-8")
    assert f"'{wish.KEY}'" in launch
