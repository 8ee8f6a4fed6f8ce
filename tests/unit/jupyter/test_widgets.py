"""Panels of a notebook: what is kept of them, in the notebook and in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_gpufair import widgets
from tests.unit.checkpoint.two_processes import TwoProcesses

ANSWERS: dict[str, Any] = {
    "budgets": {
        "allocations": [
            {"path": "vision/<b>", "gpus_held": 3, "entitlement": 0.25, "occupancy_gpu_s": 7200, "due_gpu_s": 14400},
        ]
    },
    "queue": {
        "workloads": [
            {"id": "3f2a81c0-1", "name": "", "position": 1, "user": "ada", "allocation": "vision", "gpus": 8, "nodes": 2}
        ]
    },
    "nodes": {"nodes": [{"name": "n1", "state": "ready", "gpu_type": None, "free_gpus": 2, "gpus": 8}]},
    "workloads": {"workloads": []},
    "history": {"now_s": 5, "since_s": 1, "nodes": []},
    "pyramid": {
        "pools": [
            {"pool": "default"}
            | {key: {"ratio": 0.5, "kept_gpu_s": 3600, "of_gpu_s": 7200} for key in ("availability", "occupancy", "impact")}
            | {"utilization": {"ratio": None, "kept_gpu_s": 0, "of_gpu_s": 0}}
        ]
    },
    "budgets/delivered": {"pools": []},
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widgets, "_answers", lambda routes: {route: ANSWERS[route] for route in routes})


@pytest.mark.parametrize(
    ("panel", "cells"),
    [
        (widgets.BudgetPanel, ["vision/&lt;b&gt;", "3", "25.0 %", "2.0 GPU-h", "4.0 GPU-h"]),
        (widgets.QueuePanel, ["1", "3f2a81c0", "ada", "vision", "16"]),
        (widgets.ClusterMap, ["n1", "ready", "", "2 of 8"]),
        (widgets.Pyramid, ["default", "impact", "50.0 %", "1.0 GPU-h", "2.0 GPU-h"]),
        (widgets.Pyramid, ["default", "utilization", "unknown", "0 GPU-s", "0 GPU-s"]),
    ],
)
def test_a_table_is_kept_for_readers_without_a_kernel(told: None, panel: type[Any], cells: list[str]) -> None:
    """In the notebook beside the view, whatever names hold is text."""
    bundle = panel()._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "".join(f"<td>{cell}</td>" for cell in cells) in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data


def test_without_a_service_there_is_a_view_and_no_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page asks by itself; a kernel that may not is no error."""
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("GPUFAIR_URL", raising=False)
    bundle = widgets.BudgetPanel()._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "text/html" not in data


def test_a_panel_is_there_after_a_restore(tmp_path: Path) -> None:
    """Other widgets are named as lost: their front end belongs to the old kernel. This one has no state but the lab's."""
    place = TwoProcesses(tmp_path / "place")
    saved = place.save("from jupyter_gpufair.widgets import BudgetPanel\npanel = BudgetPanel()\nsame = [panel]")
    assert saved["lost"] == {}
    assert place.restore({"panel": "assert type(panel).__name__ == 'BudgetPanel' and same[0] is panel"})["answers"] == {"panel": "ok"}
