"""All that a real service answers to `GET` while it works is what the API's document says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from gpufair.service.api import routed
from tests.integration.service.rig import Rig, until
from tests.unit.service.contract import problems

# A text, an archive, a stream of events, and what only an agent may ask.
NO_JSON = {
    "/api/v1/agents/{node}/check",
    "/api/v1/agents/{node}/commands",
    "/api/v1/pods/{pod}/commands",
    "/api/v1/events",
    "/api/v1/workloads/{workload}/checkpoints/{checkpoint}/export",
    "/metrics",
}
KERNEL = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]


def test_each_route_answers_as_promised_while_work_runs(tmp_path: Path) -> None:
    """A run that ended, one that runs, one that waits for its GPU, and a kernel with a checkpoint; a budget is asked for."""
    rig = Rig(tmp_path)
    try:
        rig.start()
        rig.submit("ended", "echo done", min_runtime_s=1)
        rig.submit("kernel", "", kind="session", gpus=0, min_runtime_s=0, launch={"type": "kernel", "argv": KERNEL, "cwd": str(tmp_path)})
        rig.await_state("ended", "ended")
        rig.submit("runs", "echo begun; sleep 600")
        rig.submit("waits", "true", allocation="b")
        rig.await_state("runs", "running")
        rig.ask("POST", "/budgets/requests", json={"shares": {"b": 2}, "why": "a deadline"})
        until("the kernel to serve", lambda: rig.get("kernel")["serving"])
        rig.ask("POST", "/workloads/kernel/checkpoint")
        until("its checkpoint", lambda: rig.get("kernel")["checkpoint"])
        answered = {path for path in _routes() if _walk(rig, path)}
        assert answered == _routes()
    finally:
        rig.clean()


def _routes() -> set[str]:
    paths: dict[str, Any] = routed("test").openapi()["paths"]
    return {path for path, methods in paths.items() if "get" in methods} - NO_JSON


def _walk(rig: Rig, path: str) -> int:
    """How many good answers there are, for all workloads where the path names one; none may be another than promised."""
    assert rig.http is not None
    root = str(rig.http.base_url).removesuffix("/").removesuffix("/api/v1")
    known = {"number": ["1"], "workload": ["ended", "kernel", "runs", "waits"]}
    names = re.findall(r"\{(\w+)\}", path)
    good = 0
    for value in known[names[0]] if names else [""]:
        at = path.replace(f"{{{names[0]}}}", value) if names else path
        answer = rig.http.get(root + at, params={"allocation": "a"} if path.endswith(("/why", "/over-time")) else {})
        media_type = answer.headers["content-type"].partition(";")[0]
        assert problems("GET", at, answer.status_code, media_type, answer.json()) == [], at
        good += answer.status_code == 200
    return good
