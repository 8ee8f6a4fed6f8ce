"""`gpufair budgets request …`: the right request, and a sentence that says what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import NOW, Gpufair
from tests.unit.client.fake_service import FakeService, Reply, problem

API = "/api/v1/budgets"


def one(state: str = "open", **more: Any) -> dict[str, Any]:
    base = {"id": 7, "state": state, "user": "ria", "asked_s": NOW, "wished": {"language/pretrain": "90"}}
    return base | {"shares": base["wished"], "why": "the paper"} | more


DECIDED = {"by": "uma", "at_s": NOW, "accepted": True, "words": "half of it", "amended": True}
FOUND = {"allocations": [{"path": "vision", "verdict": "loses", "before": {"entitlement": 0.4}, "after": None}, 5]}


def test_a_share_is_asked_for(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes[f"POST {API}/requests"] = Reply(201, one())
    seen = gpufair("budgets", "request", "language/pretrain=90", "--why", "the paper", "--until", "2033-01-01T08:00")
    assert (seen.code, seen.out.partition(":")[0]) == (0, "request 7 (language/pretrain=90) is open")
    body = fake.calls(f"POST {API}/requests")[0].json
    assert (body["shares"], body["why"], "from_s" in body) == ({"language/pretrain": "90"}, "the paper", False)
    assert body["until_s"] > NOW
    assert len(body["key"]) == 32


def test_gpus_are_asked_for(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes[f"POST {API}/requests"] = Reply(201, one(gpus=6.0))
    seen = gpufair("budgets", "request", "language/pretrain", "--gpus", "6", "--why", "the paper")
    assert "(asked for 6 GPUs)" in seen.out
    body = fake.calls(f"POST {API}/requests")[0].json
    assert (body["allocation"], body["gpus"], "shares" in body) == ("language/pretrain", 6.0, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["request", "a", "--why", "x"], "'a' is no PATH=SHARE"),
        (["request", "a=1", "--gpus", "2", "--why", "x"], "name one allocation, without a share"),
        (["request", "a=1"], "--why"),
        (["set", "a=1", "--from", "soon"], "'soon' is no time"),
        (["accept", "0"], "greater than or equal to 1"),
        (["refuse", "7"], "--words"),
    ],
)
def test_what_cannot_be_understood(gpufair: Gpufair, words: list[str], said: str) -> None:
    seen = gpufair("budgets", *words)
    assert seen.code == 2
    assert said in seen.err


def test_a_decision_with_its_preview(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    fake.routes[f"POST {API}/requests/7/accept"] = Reply(200, one("accepted", from_s=NOW + 86400, shares={"a": "80"}))
    (tmp_path / "p.json").write_text(json.dumps(FOUND))
    told = ["--share", "a=80", "--words", "half of it", "--from", "2033-01-01", "--preview", str(tmp_path / "p.json")]
    seen = gpufair("budgets", "accept", "7", *told)
    assert seen.out.startswith("request 7 (a=80 (asked for language/pretrain=90)) is accepted, and comes into force ")
    body = fake.calls(f"POST {API}/requests/7/accept")[0].json
    assert (body["shares"], body["words"], body["preview"]) == ({"a": "80"}, "half of it", FOUND)
    (tmp_path / "p.json").write_text(json.dumps({"x": "y" * 70_000}))
    seen = gpufair("budgets", "accept", "7", "--preview", str(tmp_path / "p.json"))
    assert (seen.code, "is no preview" in seen.err) == (1, True)
    fake.routes[f"POST {API}/requests/7/refuse"] = problem(409, "Conflict", "request 7 was accepted already by uma")
    seen = gpufair("budgets", "refuse", "7", "--words", "no")
    assert (seen.code, seen.err) == (1, "gpufair: request 7 was accepted already by uma\n")
    fake.routes[f"POST {API}/requests/7/withdraw"] = Reply(200, one("withdrawn"))
    assert gpufair("budgets", "withdraw", "7").out == "request 7 (language/pretrain=90) is withdrawn\n"


def test_shares_are_set(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes[f"POST {API}/changes"] = Reply(201, one("in_force"))
    seen = gpufair("budgets", "set", "language/pretrain=90", "--why", "agreed on Monday")
    assert seen.out == "request 7 (language/pretrain=90) is in force\n"
    body = fake.calls(f"POST {API}/changes")[0].json
    assert body == {"shares": {"language/pretrain": "90"}, "why": "agreed on Monday"}


def test_requests_are_listed_and_one_is_shown(gpufair: Gpufair, fake: FakeService) -> None:
    """A preview is somebody's word: what of it is not as expected is left out."""
    fake.routes[f"GET {API}/requests"] = Reply(body={"user": "uma", "owner": True, "requests": [one()], "more": False})
    rows = gpufair("budgets", "requests").out.splitlines()
    assert rows[1].split()[:4] == ["7", "open", "ria", "language/pretrain=90"]
    assert fake.calls(f"GET {API}/requests")[0].query["state"] == ["open,accepted"]
    assert gpufair("budgets", "requests", "--all", "--json").json["requests"][0]["id"] == 7
    assert fake.calls(f"GET {API}/requests")[1].query.get("state", [""]) == [""]
    whole = one("in_force", decision=DECIDED, in_force_s=NOW, before={"a": "1"}, preview={"by": "uma", "found": FOUND})
    fake.routes[f"GET {API}/requests/7"] = Reply(body=whole)
    seen = gpufair("budgets", "requests", "7").out
    assert "accepted, amended, by uma" in seen
    assert "half of it" in seen
    assert "What uma looked at" in seen
    assert "vision      40.0 %" in seen


def test_history(gpufair: Gpufair, fake: FakeService) -> None:
    then = {"share": "1", "entitlement": 0.5, "members": ["bo"]}
    rows = [
        {"path": "a", "change": "changed", "before": then, "after": then | {"share": "3", "entitlement": 0.75}},
        {"path": "b", "change": "removed", "before": then, "after": {"share": None, "entitlement": None}},
        {"path": "c", "change": "added", "before": {}, "after": then | {"members": []}},
        {"path": "d", "change": "changed", "before": then, "after": then | {"members": []}},
    ]
    change = {"number": 4, "at_s": NOW, "by": "uma", "why": "the paper", "request": 7, "count": 30, "allocations": rows}
    fake.routes[f"GET {API}/history"] = Reply(body={"changes": [change], "more": True})
    head, *rest = gpufair("budgets", "history", "-n", "1").out.splitlines()
    assert head.startswith("4. ")
    assert head.endswith(", uma (request 7): the paper")
    assert rest == [
        "   a: share 1 → 3 (50.0 % → 75.0 %)",
        "   b: removed (its share was 1)",
        "   c: added with share 1 (50.0 %)",
        "   d: members bo → all",
        "   and 10 more; `--json` has them",
        "there are earlier ones: `gpufair budgets history --before 4`",
    ]
    assert gpufair("budgets", "history", "--json").json["changes"][0]["count"] == 30
    fake.routes[f"GET {API}/history"] = Reply(body={"changes": [], "more": False})
    assert gpufair("budgets", "history").out == "the budgets have not been changed\n"
