"""The API's document is complete, the same each time, and true. (That answers are what it says, every test of the service
checks: see ``contract.check``.)"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpufair.client import answers as whole
from gpufair.client.json_schema import components
from gpufair.core.coach import Outlook
from gpufair.core.model import Kind, Outcome, Phase
from gpufair.service.api import routed
from gpufair.service.web.contract import OPEN, examples
from tests.unit.service import contract
from tests.unit.service.rig import LAUNCH, bearer, service_at

API = "/api/v1"
OPERATIONS = [
    (method, path, told) for path, methods in contract.document()["paths"].items() for method, told in methods.items()
]


@pytest.mark.parametrize(("method", "path", "told"), OPERATIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_operation_is_described_whole(method: str, path: str, told: dict[str, Any]) -> None:
    """What it does, what it answers, how it refuses, whose token it needs."""
    assert told["summary"]
    assert told["summary"][-1] not in ".,:;"
    assert told["description"]
    assert told["tags"]
    assert path.startswith(f"{API}/") or path in {"/healthz", "/readyz", "/metrics"}
    assert bool(told["security"]) == (path not in OPEN)
    good = {status: response for status, response in told["responses"].items() if status.startswith("2")}
    assert good, "no answer"
    for response in good.values():
        assert response["description"]
        for media_type, content in response["content"].items():
            assert content["schema"].get("$ref") or not media_type.endswith("json"), contract.HOW
    if path not in OPEN:
        for status in ("401", "4XX", "5XX"):
            schema = told["responses"][status]["content"]["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}


def test_names_of_operations_are_unique_and_say_what_they_do() -> None:
    """Generated clients call their functions by them."""
    names = [told["operationId"] for _, _, told in OPERATIONS]
    assert len(set(names)) == len(names)
    assert {"get_queue", "post_workloads", "post_workloads_workload_park"} <= set(names)


def test_every_reference_leads_somewhere() -> None:
    """A document that a generator cannot read is no contract."""
    document = contract.document()
    Draft202012Validator.check_schema({"$defs": document["components"]["schemas"]})
    text = json.dumps(document)
    for name in {part.split('"', 1)[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert name in document["components"]["schemas"], name


def test_every_answer_and_body_has_an_example_that_is_one() -> None:
    """People read the example, not the schema."""
    text = json.dumps(contract.document()["paths"])
    roots = {part.split('"', 1)[0] for part in text.split('"#/components/schemas/')[1:]}
    without = {"Nothing"}  # an empty body
    assert roots - set(examples()) <= without, "add one to service/api_examples.json"
    assert set(examples()) <= set(contract.document()["components"]["schemas"]), "an example of nothing"
    for name, example in examples().items():
        assert contract.errors_of(name, example) == [], name
        assert contract.document()["components"]["schemas"][name]["examples"] == [example]


def test_words_are_those_of_the_core() -> None:
    """The client has no business with the core, so it names them itself."""
    schemas = contract.document()["components"]["schemas"]

    def words(kind: str, field: str) -> set[str]:
        return {word for word in schemas[kind]["properties"][field]["enum"] if word is not None}

    assert words("Workload", "state") == set(Phase)
    assert words("Workload", "kind") == set(Kind)
    assert words("Workload", "outcome") == set(Outcome)
    assert words("Choice", "outlook") == set(Outlook)


def test_two_kinds_of_one_name_are_told() -> None:
    """One would silently take the other's place."""
    other = type("Status", (whole.Health,), {"__module__": "elsewhere"})
    assert "Status" in components([other])
    from gpufair.client.types import Status

    with pytest.raises(ValueError, match="two kinds of answer are called Status"):
        components([other, Status])


def test_the_command_prints_it_without_a_service(tmp_path: Path) -> None:
    """And twice the same, for those who keep it in a repository."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GPUFAIR_STATE_DIR": str(tmp_path / "none")}
    command = [sys.executable, "-m", "gpufair.cli", "api-schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    assert not (tmp_path / "none").exists()
    printed = json.loads(done.stdout)
    here = routed(metadata.version("jupyter-gpufair")).openapi()
    assert json.dumps(printed) == json.dumps(here), "as it is, and in the same order"
    assert printed["info"]["version"] == metadata.version("jupyter-gpufair")


async def test_a_service_answers_it_to_its_users(tmp_path: Path) -> None:
    """Behind the login as all else: it says which version this is."""
    async with service_at(tmp_path) as (it, client):
        ada = bearer(it.secrets.user_token("ada"))
        assert (await client.get(f"{API}/openapi.json", headers=ada)).json() == contract.document()
        assert (await client.get(f"{API}/openapi.json", headers=bearer("nobody"))).status_code == 401


async def test_lists_come_in_pages(tmp_path: Path) -> None:
    """All of them, each once, whatever ends and begins between two pages."""
    async with service_at(tmp_path) as (_it, client):
        for number in range(7):
            body = {"id": f"w{number}", "user": "ada", "gpus": 2, "min_runtime_s": 60, "launch": LAUNCH}
            assert (await client.post(f"{API}/workloads", json=body)).status_code == 201

        async def pages(path: str, key: str, between: Any = None, **params: Any) -> list[str]:
            found: list[str] = []
            cursor: dict[str, str] = {}
            while True:
                answer = (await client.get(f"{API}/{path}", params=params | cursor)).json()
                assert len(answer[key]) <= params["limit"]
                found += [one.get("id") or one["name"] for one in answer[key]]
                if answer["next"] is None:
                    return found
                cursor = {"cursor": answer["next"]}
                if between is not None:
                    await between()
                    between = None

        async def more() -> None:
            await client.delete(f"{API}/workloads/w1")
            await client.post(f"{API}/workloads", json={"id": "w00", "user": "ada", "gpus": 1, "min_runtime_s": 60, "launch": LAUNCH})

        every = [f"w{number}" for number in range(7)]
        assert await pages("workloads", "workloads", limit=2) == every
        assert await pages("queue", "workloads", limit=4, fields="id,position") == every[1:]
        assert await pages("workloads", "workloads", limit=100) == every
        assert await pages("nodes", "nodes", limit=1) == ["n1"]
        # The clock stands still: the new one's key lies before the last one that was told.
        assert await pages("workloads", "workloads", more, limit=3) == every
        assert [one["id"] for one in (await client.get(f"{API}/workloads")).json()["workloads"]] == ["w0", "w00", *every[1:]]
        for wrong in ("x", "e30=", "WzEsMl0=", "W1siYSJdXQ==", "é"):
            answer = await client.get(f"{API}/workloads", params={"cursor": wrong})
            assert (answer.status_code, answer.json()["error"]) == (400, "BadRequest"), wrong
