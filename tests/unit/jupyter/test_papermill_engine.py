"""What papermill's keywords, and a notebook's metadata, become of a submission."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from gpufair.cli.exits import NoSuch
from gpufair.client.notebooks import BadNotebook
from tests.unit.client.fake_service import Asked, FakeService, Reply, serving, workload

PREPARE = "3f2a81c0-0000-4000-8000-000000000001"
SEEDS = ["3f2b0000-0000-4000-8000-000000000002", "3f2c0000-0000-4000-8000-000000000003"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A service where whatever is submitted has ended well at once."""
    known = [workload(PREPARE, name="prepare"), *(workload(one, name=f"seeds[{at}]") for at, one in enumerate(SEEDS))]

    def submitted(asked: Asked) -> Reply:
        done = workload(asked.json["id"], state="ended", outcome="completed", position=None)
        service.routes[f"GET /api/v1/workloads/{done['id']}"] = Reply(body=done)
        return Reply(201, done)

    with serving() as service:
        service.routes |= {"GET /api/v1/workloads": Reply(body={"workloads": known}), "POST /api/v1/workloads": submitted}
        monkeypatch.setenv("GPUFAIR_URL", service.url)
        monkeypatch.setenv("GPUFAIR_TOKEN", service.token)
        yield service


def run(folder: Path, metadata: dict[str, Any] | None = None, **asked: Any) -> None:
    spec = {"name": "python3", "language": "python", "display_name": "Python 3"}
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")], metadata={"kernelspec": spec})
    made.metadata["gpufair"] = {"submit": metadata or {}}
    nbformat.write(made, folder / "in.ipynb")
    papermill.execute_notebook(
        str(folder / "in.ipynb"), str(folder / "out.ipynb"), engine_name="gpufair", progress_bar=False, **asked
    )


def sent(fake: FakeService) -> dict[str, Any]:
    (asked,) = fake.calls("POST /api/v1/workloads")
    body: dict[str, Any] = asked.json
    return body


def test_keywords_are_fields_of_the_submission(fake: FakeService, tmp_path: Path) -> None:
    run(tmp_path, after="prepare", after_any=["seeds"], retries=3, retry_after_s=60, timeout_s=7200, gpus=2)
    body = sent(fake)
    assert (body["after"], body["after_any"]) == ([PREPARE], SEEDS)  # the name of an array means all its runs
    assert (body["retries"], body["retry_after_s"], body["timeout_s"], body["gpus"]) == (3, 60, 7200, 2)


def test_keywords_come_before_the_metadata(fake: FakeService, tmp_path: Path) -> None:
    run(tmp_path, {"retries": 1, "timeout_s": 5, "after": ["3f2b"]}, retries=0)
    body = sent(fake)
    assert (body["retries"], body["timeout_s"], body["after"]) == (0, 5, SEEDS[:1])
    assert "after_any" not in body


@pytest.mark.parametrize(
    ("after", "error"), [(7, BadNotebook), ([["prepare"]], BadNotebook), ("nobody", NoSuch)], ids=["number", "lists", "unknown"]
)
def test_what_names_no_workload_is_not_submitted(fake: FakeService, tmp_path: Path, after: Any, error: type[Exception]) -> None:
    """And nothing of the run is left beside the output."""
    with pytest.raises(error):
        run(tmp_path, after=after)
    assert fake.calls("POST /api/v1/workloads") == []
    assert list(tmp_path.rglob("input.ipynb")) == []
