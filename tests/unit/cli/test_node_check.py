"""`gpufair agent --check`: each thing that keeps a node from working is named, with what to do; nothing is started."""

from __future__ import annotations

import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gpufair.wire import hello_proof
from tests.unit.cli.conftest import Gpufair
from tests.unit.client.fake_service import Asked, FakeService, Reply

TOKEN = "the-nodes-token"  # of this test


def good(asked: Asked, **changes: Any) -> Reply:
    told = {
        "proof": hello_proof(TOKEN, asked.query["boot"][0]), "known": True, "heard": False, "api_version": 1,
        "version": metadata.version("jupyter-gpufair"), "now_s": time.time(),
    }  # fmt: skip
    return Reply(body=told | changes)


@pytest.fixture
def arguments(tmp_path: Path, fake: FakeService) -> list[str]:
    token = tmp_path / "node.token"
    token.touch(0o600)
    token.write_text(TOKEN)
    fake.token = TOKEN
    fake.routes["GET /api/v1/agents/far/check"] = good
    given = ["far", "--service", fake.url, "--token-file", str(token), "--folder", str(tmp_path / "far")]
    return ["agent", *given, "--gpus", "2", "--run-as", "agent", "--host", "localhost", "--check"]


def found(gpufair: Gpufair, arguments: list[str]) -> tuple[int, list[tuple[str, str, str, str]]]:
    seen = gpufair(*arguments, "--json")
    return seen.code, [(one["level"], one["about"], one["said"], one["advice"]) for one in seen.json["findings"]]


def test_all_is_well(gpufair: Gpufair, fake: FakeService, arguments: list[str], tmp_path: Path) -> None:
    code, findings = found(gpufair, arguments)
    assert code == 0, findings
    assert ("ok", "clock", "this machine and the service agree", "") in findings
    assert any("each knows the other's token" in said for _, _, said, _ in findings)
    assert not (tmp_path / "far").exists(), "it only looks"
    text = gpufair(*arguments)
    assert text.out.splitlines()[-1] == "0 problems, 1 warning", text.out  # of its name, which is for itself only


@pytest.mark.parametrize(
    ("changes", "level", "said", "advice"),
    [
        ({"proof": "0"}, "problem", "does not know this node's token", "correct --service"),
        ({"known": False}, "problem", "'far' is not in its configuration", "remote = true"),
        ({"api_version": 9}, "problem", "the service speaks version 9", "update the older"),
        ({"version": "0.0.1"}, "warning", "the service is version 0.0.1", "update the older"),
        ({"now_s": 1.0}, "warning", "differ by", "NTP"),
    ],
)
def test_what_does_not_fit_is_named(
    gpufair: Gpufair, fake: FakeService, arguments: list[str], changes: dict[str, Any], level: str, said: str, advice: str
) -> None:
    fake.routes["GET /api/v1/agents/far/check"] = lambda asked: good(asked, **changes)
    code, findings = found(gpufair, arguments)
    assert code == (1 if level == "problem" else 0)
    assert [one for one in findings if one[0] == level and said in one[2] and advice in one[3]], findings


@pytest.mark.parametrize(
    ("reply", "said", "advice"),
    [
        (Reply(401, {"detail": "not this token"}), "does not take this token: not this token", "gpufair nodes token far"),
        (Reply(404, {"detail": "no such route"}), "does not know this question", "update the service"),
        (Reply(500, {"detail": "broken"}), "answered 500: broken", ""),
    ],
)
def test_a_refusal_is_told_with_the_next_step(
    gpufair: Gpufair, fake: FakeService, arguments: list[str], reply: Reply, said: str, advice: str
) -> None:
    fake.routes["GET /api/v1/agents/far/check"] = reply
    code, findings = found(gpufair, arguments)
    assert code == 1
    assert [one for one in findings if one[0] == "problem" and said in one[2] and advice in one[3]], findings


def test_a_service_that_is_not_there_is_told(gpufair: Gpufair, arguments: list[str]) -> None:
    at = arguments.index("--service") + 1
    code, findings = found(gpufair, [*arguments[:at], "http://127.0.0.1:1", *arguments[at + 1 :]])
    assert code == 1
    assert [one for one in findings if "does not answer" in one[2] and "--ca" in one[3]], findings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--service", "ftp://x"], "no http(s) address"),
        (["--service", "https://ada:secret@x"], "holds a user or password"),
        (["--service", "http://gpufair.lab"], "unencrypted"),
        (["--run-as", "me"], "expected owner or agent"),
        (["--ports", "7-3"], "two numbers"),
    ],
)
def test_wrong_options_are_refused_at_once(gpufair: Gpufair, arguments: list[str], given: list[str], said: str) -> None:
    seen = gpufair(*arguments, *given)
    assert seen.code == 2
    assert said in " ".join(seen.err.split())
    assert "secret" not in seen.err
