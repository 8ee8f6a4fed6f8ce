"""A session as front ends see it: the JSON of REST, of events and of ``gpufair`` in Jupyter's own kernel models."""

from __future__ import annotations

from typing import Any

from gpufair.client.json_schema import inlined
from gpufair.client.overview import workload_view
from jupyter_gpufair.answers import Session as Shown
from jupyter_gpufair.session import Session

SESSION_EVENT = "https://jupyter-gpufair.org/events/session/v1"

SESSION_SCHEMA: dict[str, Any] = inlined(Shown) | {
    "$id": SESSION_EVENT,
    "version": "1",
    "title": "Session of the GPU scheduler",
    "description": "The state of a kernel's session, emitted whenever it changes.",
    "personal-data": True,
}


def session_view(session: Session, held_cells: int = 0) -> dict[str, Any]:
    """The session as JSON. Instants are Unix seconds; what does not apply is null."""
    view: dict[str, Any] = {
        "kernel_id": session.kernel_id,
        "workload_id": session.kernel_id,
        "state": session.state,
        "allocation": "",
        "gpus": 0,
        "gpu_type": None,
        "node": None,
        "device_ids": [],
        "protected_until_s": None,
        "deadline_s": None,
        "leaving": None,
        "utilization": None,
        "position": None,
        "estimate_s": None,
        "start_by_s": None,
        "reason": "",
        "withheld": "",
        "held_cells": held_cells,
        "progress": None,
        "checkpoint": None,
        "restore_offered": False,
        "resumable": True,
        "on_cpu": False,
        "moving": False,
        "suggestion": None,
        "not_moved": None,
        "lost": [],
    }
    return view if session.workload is None else view | workload_view(session.workload)
