"""One shape in Python, in the front end's types and in the fake that the browser tests run against."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from gpufair.client import insight
from gpufair.client.insight import Choice, Coaching
from gpufair.client.types import AllocationView, Budgets, Explanation, NodeView, Profile, Queue, Workload
from jupyter_gpufair import wish
from jupyter_gpufair.handlers import ACTIONS
from jupyter_gpufair.overview import LAB_EVENT
from jupyter_gpufair.view import SESSION_EVENT, SESSION_SCHEMA
from tests.e2e import fake_sessions

LAB = (Path(__file__).parents[2] / "labextension" / "src" / "lab" / "wire.ts").read_text(encoding="utf-8")
WIRE = (Path(__file__).parents[2] / "labextension" / "src" / "wire.ts").read_text(encoding="utf-8")


def fields(interface: str, source: str = WIRE) -> set[str]:
    """Names of the fields that an interface of wire.ts has."""
    body = re.search(rf"export interface {interface} (?:extends \w+ )?{{\n(.*?)\n}}", source, re.DOTALL)
    assert body is not None, interface
    return set(re.findall(r"^  (\w+): ", body[1], re.MULTILINE))


def union(name: str) -> set[str]:
    """Members of a union of strings in wire.ts."""
    body = re.search(rf"export type {name} =(.*?);", WIRE, re.DOTALL)
    assert body is not None, name
    return set(re.findall(r"'(\w+)'", body[1]))


def test_the_front_end_reads_the_fields_that_are_sent() -> None:
    """A field renamed on one side only would show as `undefined`, in front of a person."""
    properties = SESSION_SCHEMA["properties"]
    assert fields("ISession") == set(properties)
    assert fields("ICheckpoint") == set(properties["checkpoint"]["properties"])
    assert fields("ILost") == set(properties["lost"]["items"]["properties"])
    assert union("State") == set(properties["state"]["enum"])
    assert union("Action") == set(ACTIONS)
    assert f"'{SESSION_EVENT}'" in WIRE


def test_the_fake_has_the_shape_of_the_real_one() -> None:
    """The browser tests prove something only as long as the fake answers like the server."""
    assert {"kernel_id", *fake_sessions.SESSION} == set(SESSION_SCHEMA["properties"])


@pytest.mark.parametrize(
    ("interface", "answer"),
    [
        ("IWorkload", Workload),
        ("IQueue", Queue),
        ("IAllocation", AllocationView),
        ("IBudgets", Budgets),
        ("INode", NodeView),
        ("IExplanation", Explanation),
        ("IProfile", Profile),
        ("IChoice", Choice),
        ("ICoaching", Coaching),
        ("ILoss", insight.Loss),
        ("ILevel", insight.Level),
        ("IPyramidOfPool", insight.PyramidOfPool),
        ("IPyramid", insight.Pyramid),
        ("IDelivered", insight.DeliveredView),
        ("IDeliveries", insight.Deliveries),
        ("ICourse", insight.Course),
        ("ICoursesInPool", insight.CoursesInPool),
        ("IOverTime", insight.BudgetsOverTime),
        ("IStay", insight.Stay),
        ("INodeHistory", insight.NodeHistory),
        ("IGpuHistory", insight.GpuHistory),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_panels_read_what_the_service_answers(interface: str, answer: type) -> None:
    """They read less than it has, under its names."""
    assert fields(interface, LAB) <= {field.name for field in dataclasses.fields(answer)}
    assert f"'{LAB_EVENT}'" in LAB


def test_a_notebook_asks_for_what_is_read() -> None:
    """The dialog writes, the provisioner reads; both write and read the same names."""
    assert {name.removesuffix("?") for name in re.findall(r"^  (\w+\??): ", _body("IWish"), re.MULTILINE)} == set(wish._KINDS)
    launch = (Path(__file__).parents[2] / "labextension" / "src" / "lab" / "launch.ts").read_text(encoding="utf-8")
    assert f"'{wish.KEY}'" in launch


def _body(interface: str) -> str:
    found = re.search(rf"export interface {interface} {{\n(.*?)\n}}", LAB, re.DOTALL)
    assert found is not None, interface
    return found[1]
