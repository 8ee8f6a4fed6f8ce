"""A server extension that answers like ours, for an ordinary kernel, with whatever a test tells it.

It lets the front end be tested in every state within seconds, also those that take a dead node to reach.
`PUT gpufair/fake/{kernel_id}` with ``{"session": {...}, "executions": [...], "cells": [...]}`` sets what is answered, and
emits the event; `GET` of the same address tells which actions the browser asked for.
"""

from __future__ import annotations

import json
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from tornado import web

from jupyter_gpufair.view import SESSION_EVENT, SESSION_SCHEMA

SESSION: dict[str, Any] = {
    "workload_id": "w-1",
    "state": "running",
    "allocation": "vision/ada",
    "gpus": 1,
    "gpu_type": None,
    "node": "node-a",
    "device_ids": ["GPU-0"],
    "protected_until_s": None,
    "deadline_s": None,
    "leaving": None,
    "utilization": None,
    "position": None,
    "estimate_s": None,
    "start_by_s": None,
    "reason": "",
    "withheld": "",
    "held_cells": 0,
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
sessions: dict[str, dict[str, Any]] = {}
executions: dict[str, list[dict[str, Any]]] = {}
cells: dict[str, list[dict[str, Any]]] = {}
actions: dict[str, list[str]] = {}


class Fake(APIHandler):
    @web.authenticated
    def put(self, kernel_id: str) -> None:
        told = self.get_json_body() or {}
        if "executions" in told:
            executions[kernel_id] = told["executions"]
        if "cells" in told:
            cells[kernel_id] = told["cells"]
        if "session" in told:
            sessions[kernel_id] = {"kernel_id": kernel_id, **SESSION, **told["session"]}
            self.event_logger.emit(schema_id=SESSION_EVENT, data=sessions[kernel_id])
        self.finish("{}")

    @web.authenticated
    def get(self, kernel_id: str) -> None:
        self.finish(json.dumps({"actions": actions.get(kernel_id, [])}))


class Session(APIHandler):
    @web.authenticated
    def get(self, kernel_id: str) -> None:
        if kernel_id not in sessions:
            raise web.HTTPError(404)
        self.finish(json.dumps(sessions[kernel_id]))


class Outputs(APIHandler):
    @web.authenticated
    def get(self, kernel_id: str) -> None:
        self.finish(json.dumps({"executions": executions.get(kernel_id, [])}))


class Cells(APIHandler):
    @web.authenticated
    def get(self, kernel_id: str) -> None:
        self.finish(json.dumps({"cells": cells.get(kernel_id, [])}))


class Action(APIHandler):
    @web.authenticated
    def post(self, kernel_id: str, action: str) -> None:
        actions.setdefault(kernel_id, []).append(action)
        self.set_status(202)
        self.finish("{}")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.e2e.fake_sessions"}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    assert server.event_logger is not None
    server.event_logger.register_event_schema(SESSION_SCHEMA)
    kernel = r"([0-9a-f-]+)"
    routes = [
        (f"fake/{kernel}", Fake),
        (f"sessions/{kernel}", Session),
        (f"sessions/{kernel}/outputs", Outputs),
        (f"sessions/{kernel}/cells", Cells),
        (f"sessions/{kernel}/(checkpoint|park|resume|open|dismiss|restore)", Action),
    ]
    base = server.web_app.settings["base_url"]
    server.web_app.add_handlers(".*$", [(url_path_join(base, "gpufair", path), handler) for path, handler in routes])
