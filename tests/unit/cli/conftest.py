"""The command line against a fake service over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from gpufair.cli.app import app
from tests.unit.client.fake_service import FakeService, Reply, serving, workload

TRAIN = "3f2a81c0-0000-4000-8000-000000000001"
SWEEP = "3f2b0000-0000-4000-8000-000000000002"
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Gpufair = Callable[..., Outcome]


def run(*args: str, input: str | None = None, **env: str) -> Outcome:  # noqa: A002  # as CliRunner has it
    result = CliRunner().invoke(app, args, input=input, env=env, prog_name="gpufair")
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def fake() -> Iterator[FakeService]:
    """A service with two live workloads and one that is over."""
    workloads = [
        workload(
            TRAIN,
            state="running",
            position=None,
            busy=True,
            leases=[{"node": "node-a", "gpus": 1}],
            protected_until_s=NOW + 600,
            checkpoint={"id": "c1", "sequence": 4, "at_s": NOW - 60, "size_bytes": 2_500_000, "duration_s": 0.4, "lost": []},
        ),
        workload(SWEEP, name="sweep", kind="batch", user="ben", gpus=2, nodes=2, gpu_type="A100", estimate_s=NOW + 700,
                 reason="waits for 4 GPUs"),
        workload("9999aaaa-0000-4000-8000-000000000003", name="old", state="ended", outcome="failed", position=None, ended_s=NOW),
    ]  # fmt: skip
    with serving() as service:
        service.routes |= {
            "GET /api/v1/workloads": lambda asked: Reply(
                body={"workloads": [w for w in workloads if w["state"] in asked.query.get("state", [w["state"]])]}
            ),
            "GET /api/v1/budgets": Reply(body={"allocations": [{"path": "vision"}]}),
            "GET /api/v1/queue": Reply(body={"now_s": NOW, "workloads": [workloads[1]]}),
            **{f"GET /api/v1/workloads/{w['id']}": Reply(body=w) for w in workloads},
        }
        yield service


@pytest.fixture
def gpufair(fake: FakeService) -> Gpufair:
    """Run a command against the fake."""

    def use(*args: str, input: str | None = None, **env: str) -> Outcome:  # noqa: A002  # as CliRunner has it
        return run(*args, input=input, **{"GPUFAIR_URL": fake.url, "GPUFAIR_TOKEN": fake.token, "TZ": "UTC", **env})

    return use
