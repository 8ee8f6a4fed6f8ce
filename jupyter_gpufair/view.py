"""A session as front ends see it: the JSON of REST, of events and of ``gpufair`` in Jupyter's own kernel models."""

from __future__ import annotations

from typing import Any

from gpufair.client.overview import workload_view
from jupyter_gpufair.session import Session

SESSION_EVENT = "https://jupyter-gpufair.org/events/session/v1"

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
SESSION_SCHEMA: dict[str, Any] = {
    "$id": SESSION_EVENT,
    "version": "1",
    "title": "Session of the GPU scheduler",
    "description": "The state of a kernel's session, emitted whenever it changes.",
    "personal-data": True,
    "type": "object",
    "required": ["kernel_id", "workload_id", "state"],
    "properties": {
        "kernel_id": _TEXT,
        "workload_id": _TEXT,
        "state": {
            "enum": ["queued", "starting", "restoring", "running", "checkpointing", "stopping", "parked", "ended"]
        },
        "allocation": _TEXT,
        "gpus": {"type": "integer"},
        "gpu_type": _TEXT_OR_NULL,
        "node": _TEXT_OR_NULL,
        "device_ids": {"type": "array", "items": _TEXT},
        "protected_until_s": _NUMBER_OR_NULL,
        "deadline_s": _NUMBER_OR_NULL,
        "leaving": _TEXT_OR_NULL,
        "utilization": _NUMBER_OR_NULL,
        "position": {"type": ["integer", "null"]},
        "estimate_s": _NUMBER_OR_NULL,
        "start_by_s": _NUMBER_OR_NULL,
        "reason": _TEXT,
        "withheld": _TEXT,
        "held_cells": {"type": "integer"},
        "progress": _NUMBER_OR_NULL,
        "checkpoint": {
            "type": ["object", "null"],
            "properties": {
                "id": _TEXT,
                "at_s": {"type": "number"},
                "size_bytes": {"type": "integer"},
                "duration_s": {"type": "number"},
            },
        },
        "restore_offered": {"type": "boolean"},
        "resumable": {"type": "boolean"},
        "on_cpu": {"type": "boolean"},
        "moving": {"type": "boolean"},
        "suggestion": {
            "type": ["object", "null"],
            "properties": {"kind": _TEXT, "since_s": {"type": "number"}, "text": _TEXT},
        },
        "not_moved": _TEXT_OR_NULL,
        "lost": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _TEXT, "reason": _TEXT}},
        },
    },
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
