"""What Prometheus and a load balancer are told."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer.main
from prometheus_client.parser import text_string_to_metric_families

from gpufair.cli.app import app
from tests.unit.service.rig import LAUNCH, bearer, service_at

DEPLOY = Path(__file__).parents[3] / "deploy"

COMMAND = LAUNCH | {"type": "command"}


def figures(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, values of the labels) -> value."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_sees_the_queue_the_gpus_and_what_was_decided(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        client.headers.update(bearer(it.secrets.operator_token()))
        before = figures((await client.get("/metrics")).text)
        for gpus in (1, 2):
            spec = {
                "allocation": "a",
                "gpus": gpus,
                "min_runtime_s": 60,
                "kind": "batch",
                "user": "ada",
                "launch": COMMAND,
            }
            answer = await client.post("/api/v1/workloads", json=spec)
            assert answer.status_code in (201, 202), answer.text
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        after = figures(answer.text)
        assert after["gpufair_decisions_total", ("Start",)] == 1
        assert (
            after["gpufair_events_total", ("Submitted",)] - before.get(("gpufair_events_total", ("Submitted",)), 0) == 2
        )
        assert after["gpufair_workloads", ("batch", "starting")] == 1
        assert after["gpufair_workloads", ("batch", "queued")] == 1
        assert after["gpufair_queue_gpus", ()] == 2
        assert after["gpufair_gpus", ("default", "held")] == 1
        assert after["gpufair_protected_preemptions_total", ()] == 0
        assert after["gpufair_decision_delay_seconds_count", ()] >= 2
        assert after["gpufair_commit_seconds_count", ()] >= 2
        assert ("gpufair_allocation_owed_gpu_seconds", ("a", "default")) in after
        assert not any("ada" in values for _, values in after), "people are not in the figures"


async def test_it_is_not_ready_while_the_journal_cannot_be_written(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        client.headers.pop("Authorization", None)
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"ready": True})
        await it.runtime.close()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert answer.json()["detail"]
        # Nothing else is told without a token.
        assert (await client.get("/metrics")).status_code == 401


async def test_the_dashboard_asks_for_figures_that_there_are(tmp_path: Path) -> None:
    """And leaves none out."""
    board = json.loads((DEPLOY / "grafana" / "gpufair.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:gpufair|process)_\w+", target["expr"])
    }
    async with service_at(tmp_path) as (it, client):
        told = (await client.get("/metrics", headers=bearer(it.secrets.user_token("ada")))).text
    families = list(text_string_to_metric_families(told))
    # A counter with labels has no sample before it first counts.
    known = {family.name + end for family in families for end in ("", "_total", "_bucket")}
    assert asked <= known, asked - known
    ours = {
        family.name
        for family in families
        if family.name.startswith("gpufair_") and not family.name.endswith("_created")
    }
    left_out = {name for name in ours if not any(one.startswith(name) for one in asked)}
    assert left_out == set()


@pytest.mark.parametrize("name", [path.name for path in sorted((DEPLOY / "systemd").iterdir())])
def test_a_unit_starts_what_there_is(name: str) -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / name)
    _, command, *arguments = unit["Service"]["ExecStart"].split()
    serve = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    options = {name for parameter in serve.params for name in parameter.opts}
    assert {one for one in arguments if one.startswith("--")} <= options
