"""REST under ``/gpufair/lab/mine/{id}/``: what a session or run of the user's has left behind, its checkpoints and what it wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from gpufair.client import Workload
from gpufair.client.overview import Missing
from jupyter_gpufair.answers import Log, Trace, Traces
from jupyter_gpufair.handlers import GpufairHandler
from jupyter_gpufair.mine import WORKLOAD, mine_of
from jupyter_gpufair.sessions import sessions

TAIL_BYTES = 64 << 10  # of a log, in one answer
_STEERING = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class CheckpointsHandler(GpufairHandler):
    """``GET lab/mine/{id}/checkpoints``: those that are still there, newest first."""

    @web.authenticated
    @authorized
    async def get(self, workload_id: str) -> None:
        """``Traces``."""
        await self._ask(mine_of(workload_id))
        found = await self._ask(sessions().link.client.checkpoints(workload_id))
        told = (
            Trace(one.id, one.at_s, one.size_bytes, one.duration_s, tuple(Missing(name, reason) for name, reason in one.lost))
            for one in found
        )
        self._json(asdict(Traces(tuple(told))))


class LogHandler(GpufairHandler):
    """``GET lab/mine/{id}/log?after=``: the end of what a run wrote, or of what a session's cells did."""

    @web.authenticated
    @authorized
    async def get(self, workload_id: str) -> None:
        """``Log``; ``after`` of one answer is asked for in the next, to get what came since."""
        given = self.get_query_argument("after", "-1")
        if not re.fullmatch(r"-1|\d{1,15}", given):
            raise web.HTTPError(400, "after is what the last answer said, or left out")
        workload = await self._ask(mine_of(workload_id))
        self._json(asdict(await self._ask(_log(workload, int(given)))))


async def _log(workload: Workload, after: int) -> Log:
    client = sessions().link.client
    if workload.kind == "session":
        text = text_of(await client.outputs(workload.id))
        start = max(0, len(text) - TAIL_BYTES)  # always its whole end: cells clear and rewrite what they wrote
        return Log(text[start:], start, len(text), not workload.live)
    page = await client.log(workload.id, after if after >= 0 else -TAIL_BYTES)
    begun = after if after >= 0 else max(0, page.size_bytes - TAIL_BYTES)
    if page.size_bytes - begun > TAIL_BYTES:  # it wrote more meanwhile than anybody reads
        page = await client.log(workload.id, -TAIL_BYTES)
        begun = max(0, page.size_bytes - TAIL_BYTES)
    return Log(page.text, begun, page.after, page.ended)


def text_of(executions: Iterable[Mapping[str, Any]]) -> str:
    """What cells wrote, as one text: streams, results and errors, without colours; pictures are only named."""
    parts = []
    for execution in executions:
        count = execution.get("execution_count")
        wrote = "".join(_text(output) for output in execution.get("outputs") or ())
        parts.append(f"[{' ' if count is None else count}]\n{wrote}" + ("" if not wrote or wrote.endswith("\n") else "\n"))
    return _STEERING.sub("", "".join(parts))


def _text(output: Mapping[str, Any]) -> str:
    match output.get("output_type"):
        case "stream":
            return _joined(output.get("text"))
        case "error":
            return _joined("\n".join(map(str, output.get("traceback") or ())) or f"{output.get('ename')}: {output.get('evalue')}") + "\n"
        case _:
            data = output.get("data")
            if not isinstance(data, Mapping):
                return ""
            return (_joined(data["text/plain"]) if "text/plain" in data else f"({', '.join(map(str, data))})") + "\n"


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list | tuple) else str(text or "")


HANDLERS: list[tuple[str, type[GpufairHandler]]] = [
    (rf"/gpufair/lab/mine/{WORKLOAD}/checkpoints", CheckpointsHandler),
    (rf"/gpufair/lab/mine/{WORKLOAD}/log", LogHandler),
]
