"""jupyter-scheduler in a real Jupyter server with our scheduler behind it: jobs run, fail, stop, and outlive the server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from gpufair.client import Client
from tests.integration.jupyter.fake_service import until
from tests.integration.jupyter.real import BUDGETS, CONFIG, end_all
from tests.integration.jupyter.server import ROOT, Server

PACKAGES = Path(os.environ.get("GPUFAIR_JOBS_PACKAGES", ".venv-jobs"))
ADAPTER = "jupyter_gpufair.jupyter_scheduler"
WAIT_S = 90.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    if not (PACKAGES / "jupyter_scheduler").is_dir():
        told = f"there is no jupyter_scheduler in {PACKAGES}; `make jobs-server` puts it there"
        if os.environ.get("GPUFAIR_REQUIRE_ALL") == "1":
            pytest.fail(told)
        pytest.skip(told)
    home = tmp_path_factory.mktemp("jobs")
    (home / "gpufair.toml").write_text(CONFIG)
    (home / "budgets.toml").write_text(BUDGETS)
    on = home / "home" / "config" / "jupyter_server_config.d" / "jobs.json"  # as its installation does
    on.parent.mkdir(parents=True)
    on.write_text('{"ServerApp": {"jpserver_extensions": {"jupyter_scheduler": true}}}')
    options = [
        f"--SchedulerApp.scheduler_class={ADAPTER}.GpufairScheduler",
        f"--SchedulerApp.environment_manager_class={ADAPTER}.GpufairEnvironments",
    ]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "scheduler", PACKAGES.absolute())))
    env = {"GPUFAIR_CONFIG": str(home / "gpufair.toml"), "GPUFAIR_USER": "ria", "PYTHONPATH": path}
    with Server(home / "home", home / "gpufair", options, env) as server:
        try:
            server.kernels_ready()
            with Client(state_dir=home / "gpufair") as client:
                yield server, client
        finally:
            server.kill()
            end_all(home / "gpufair")


def job(server: Server, name: str, *sources: str, **fields: Any) -> str:
    """Ask for a job on a notebook of these cells; its id."""
    made: Any = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}})
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, str(server.root / f"{name}.ipynb"))
    body = {"input_uri": f"{name}.ipynb", "name": name, "runtime_environment_name": "digits", "output_formats": ["ipynb", "html"]}
    status, answer = server.call("POST", "/scheduler/jobs", body | fields, timeout_s=60)
    assert status == 200, answer
    return str(answer["job_id"])


def becomes(server: Server, job_id: str, *states: str) -> dict[str, Any]:
    """The job, as soon as jupyter-scheduler says that it is in one of these states."""
    seen: dict[str, Any] = {}

    def look() -> bool:
        seen.update(server.get(f"/scheduler/jobs/{job_id}"))
        return seen["status"] in states

    try:
        until(look, WAIT_S, f"{job_id} is {states}")
    except AssertionError as err:
        raise AssertionError(f"{err}; it is {json.dumps(seen)}") from None
    return seen


def staged(server: Server, job_id: str, ending: str) -> Path:
    """An output of a job, where jupyter-scheduler takes it from when it is downloaded."""
    folder = server.home / "data" / "scheduler_staging_area" / job_id
    (found,) = [path for path in folder.glob(f"*{ending}") if "-20" in path.name]
    return found


def test_profiles_are_environments(place: tuple[Server, Client]) -> None:
    server, _ = place
    names = {one["name"]: one["label"] for one in server.get("/scheduler/runtime_environments")}
    assert names["digits"] == "Digits"


def test_a_job_runs_with_its_parameters(place: tuple[Server, Client]) -> None:
    """As a workload of the same id, on a GPU; outputs and what it wrote beside them are there."""
    server, client = place
    asked = {"parameters": {"x": "7"}, "runtime_environment_parameters": {"min_runtime_s": "300", "priority": "3"}}
    job_id = job(server, "good", "x = 1", "print(6 * x)\nopen('beside.txt', 'w').write('!')", **asked)
    done = becomes(server, job_id, "COMPLETED", "FAILED")
    assert (done["status"], done["status_message"]) == ("COMPLETED", ""), done
    assert done["packaged_files"] == ["beside.txt"]
    assert done["end_time"] >= done["start_time"]
    read: Any = nbformat.read(str(staged(server, job_id, ".ipynb")), as_version=4)
    assert read.cells[-1].outputs[0].text == "42\n"
    assert "42" in staged(server, job_id, ".html").read_text()
    workload = client.workload(job_id)
    assert (workload.user, workload.min_runtime_s, workload.priority, workload.gpus) == ("ria", 300, 3, 1)
    assert not list(staged(server, job_id, ".html").parent.glob(".gpufair*"))


def test_a_job_that_fails_says_why(place: tuple[Server, Client]) -> None:
    server, _ = place
    job_id = job(server, "bad", "x = 1", "1 / 0")
    failed = becomes(server, job_id, "COMPLETED", "FAILED")
    assert failed["status"] == "FAILED"
    assert failed["status_message"].startswith("cell 2 failed: ZeroDivisionError: division by zero")
    refused = job(server, "refused", "x = 1", runtime_environment_parameters={"allocation": "vision/baseline"})
    assert "vision/baseline" in becomes(server, refused, "FAILED")["status_message"]
    unknown = {"input_uri": "bad.ipynb", "name": "n", "runtime_environment_name": "digits", "runtime_environment_parameters": {"gpu": 1}}
    status, answer = server.call("POST", "/scheduler/jobs", unknown)
    assert status >= 400
    assert "There is no 'gpu' to ask for" in json.dumps(answer)


def test_stopped_and_deleted_across_a_restart_of_the_server(place: tuple[Server, Client]) -> None:
    """The next server goes on where the killed one was; what is stopped or deleted gives its GPU back."""
    server, client = place
    stopped, deleted = (job(server, name, "import time", "time.sleep(600)") for name in ("stopped", "deleted"))
    for one in (stopped, deleted):
        becomes(server, one, "IN_PROGRESS")
    server.kill()
    server.start()
    assert becomes(server, stopped, "IN_PROGRESS")["status_message"].startswith("running")
    assert server.call("PATCH", f"/scheduler/jobs/{stopped}", {"status": "STOPPED"}, timeout_s=60)[0] < 300
    becomes(server, stopped, "STOPPED")
    assert client.workload(stopped).outcome == "cancelled"
    assert server.call("DELETE", f"/scheduler/jobs/{deleted}", timeout_s=60)[0] < 300
    until(lambda: client.workload(deleted).outcome == "cancelled", WAIT_S, "its GPU is given back")
    assert [one["job_id"] for one in server.get("/scheduler/jobs")["jobs"]].count(deleted) == 0
