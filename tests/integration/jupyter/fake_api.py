"""The documented HTTP API of the service, as far as Jupyter needs it, for ``FakeService``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from tests.integration.jupyter.fake_service import FakeService, Run

API = "/api/v1"


class FakeApi:
    def __init__(self, fake: FakeService) -> None:
        self.fake = fake
        self.app = FastAPI()
        add = self.app.add_api_route
        add("/healthz", lambda: {"ok": True}, methods=["GET"])
        add(f"{API}/status", self.status, methods=["GET"])
        add(f"{API}/profiles", self.profiles, methods=["GET"])
        add(f"{API}/workloads", self.workloads, methods=["GET"])
        add(f"{API}/workloads", self.submit, methods=["POST"], status_code=201)
        add(f"{API}/workloads/{{workload}}", self.one, methods=["GET"])
        add(f"{API}/workloads/{{workload}}", self.stop, methods=["DELETE"])
        add(f"{API}/workloads/{{workload}}/connection", self.connection, methods=["GET"])
        add(f"{API}/workloads/{{workload}}/outputs", self.outputs, methods=["GET"])
        add(f"{API}/workloads/{{workload}}/{{verb}}", self.act, methods=["POST"], status_code=202)
        add(f"{API}/events", self.events, methods=["GET"], response_model=None)

    def _allowed(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {self.fake.token}":
            raise HTTPException(401, "who are you?")

    def _run(self, workload: str) -> Run:
        if workload not in self.fake.runs:
            raise HTTPException(404, f"there is no workload {workload}")
        return self.fake.runs[workload]

    def status(self, request: Request) -> dict[str, Any]:
        self._allowed(request)
        return {"version": "fake", "user": "ria", "mode": "embedded", "nodes": 2, "gpus": {"total": 2, "free": 1}}

    def profiles(self) -> dict[str, Any]:
        return {"profiles": [{"name": "digits", "display_name": "Digits", "gpus": 1, "allocation": "language"}]}

    def workloads(self) -> dict[str, Any]:
        return {"workloads": [run.view for run in self.fake.runs.values()]}

    def submit(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        self._allowed(request)
        if body.get("profile") == "nonsense":
            raise HTTPException(422, "there is no profile 'nonsense'; known are digits")
        run = self.fake.submitted(body["id"], body["launch"])
        run.calls.append("submit")
        return run.view

    def one(self, workload: str) -> dict[str, Any]:
        return self._run(workload).view

    def stop(self, workload: str) -> dict[str, Any]:
        self._run(workload).calls.append("stop")
        self.fake.end(workload, "ended by its owner")
        return self._run(workload).view

    def connection(self, request: Request, workload: str) -> dict[str, Any]:
        self._allowed(request)
        run = self._run(workload)
        view = run.view
        return {"key": run.key, "generation": view["generation"], "serving": view["serving"], "connection": run.connection}

    def outputs(self, workload: str) -> dict[str, Any]:
        self._run(workload)
        return {"executions": [{"msg_id": "m", "cell_id": "c", "outputs": []}]}

    def act(self, workload: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        run = self._run(workload)
        run.calls.append(verb + (":fresh" if body.get("from_checkpoint") is False else ""))
        state = run.view["state"]
        if verb == "resume":
            self._require(workload, state, "parked", verb)
            if body.get("from_checkpoint") is False:
                self.fake.set(workload, checkpoint=None)
            self.fake.set(workload, state="queued")
            if not self.fake.queueing:
                self.fake.start(workload)
        elif verb == "restart":
            self._require(workload, state, "running", verb)
            self.fake.kill(run)
            self.fake.launch(run)
        elif verb == "park":
            self.fake.park(workload, preempted=False)
        elif verb == "interrupt" and run.process is not None:
            os.kill(run.process.pid, signal.SIGINT)
        return run.view

    @staticmethod
    def _require(workload: str, state: str, wanted: str, verb: str) -> None:
        if state != wanted:
            raise HTTPException(409, f"cannot {verb} workload {workload}: it is {state}")

    def events(self, request: Request, holder: int = 0) -> StreamingResponse:
        self._allowed(request)
        return StreamingResponse(self._stream(holder), media_type="text/event-stream")

    async def _stream(self, holder: int) -> AsyncIterator[str]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        entry = (asyncio.get_running_loop(), queue)
        with self.fake.lock:
            self.fake.readers.append(entry)
            listing = [dict(run.view) for run in self.fake.runs.values() if run.view["state"] != "ended"]
        self.fake.holders += holder
        try:
            for view in listing:
                yield f"event: workload\ndata: {json.dumps(view)}\n\n"
            yield 'event: synced\ndata: {"at_s": 0}\n\n'
            while True:
                yield f"event: workload\ndata: {json.dumps(await queue.get())}\n\n"
        finally:
            self.fake.holders -= holder
            self.fake.readers.remove(entry)


def fresh_key() -> str:
    """A kernel key."""
    return uuid.uuid4().hex
