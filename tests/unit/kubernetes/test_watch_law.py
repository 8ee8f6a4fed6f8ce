"""The law of a reflector: whatever happens on the way, in the end it holds what the server holds, and has told how it got there."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufair.service.backends.kubernetes.api import Pause
from gpufair.service.backends.kubernetes.watch import Change, Reflector
from tests.unit.kubernetes.raw_server import Request, api_of, raw_server, says, status

PODS = "/api/v1/namespaces/a/pods"
NAMES = ("p", "q", "r")

change = st.tuples(st.sampled_from(["put", "put", "delete", "replace"]), st.sampled_from(NAMES))
mishap = st.tuples(
    st.sampled_from(["cut", "half", "end", "garbage", "forget", "repeat", "bookmark", "late", "http 410", "503"]),
    st.integers(1, 4),
)
steps = st.lists(st.one_of(change, change, mishap), max_size=25)


class Model:
    """A server that plays ``script``: changes happen in its order, and streams meet the mishaps in between."""

    def __init__(self, script: list[tuple[str, Any]], page: int) -> None:
        self.script, self.page = script, page
        self.version, self.uids, self.oldest = 10, 0, 0
        self.held: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []

    def act(self, what: str, name: str) -> None:
        self.version += 1
        known = self.held.pop(name, None)
        if known is not None and what in {"delete", "replace"}:
            self.history.append((self.version, "DELETED", _at(known, self.version)))
            known = None
            self.version += what == "replace"
        if what != "delete":
            if known is None:
                self.uids += 1
            uid = f"uid-{self.uids}" if known is None else known["metadata"]["uid"]
            item = {"metadata": {"name": name, "namespace": "a", "uid": uid, "resourceVersion": str(self.version)}}
            self.held[name] = item
            self.history.append((self.version, "ADDED" if known is None else "MODIFIED", item))

    def run_changes(self) -> None:
        """Those that happen while nobody watches."""
        while self.script and self.script[0][0] in {"put", "delete", "replace"}:
            self.act(*self.script.pop(0))

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if "watch" in request.query:
            await self.stream(int(request.query["resourceVersion"]), writer)
            return
        items = [self.held[name] for name in sorted(self.held)]
        about = {"resourceVersion": str(self.version)}
        if (limit := request.query.get("limit")) is not None:
            begin = int(request.query.get("continue") or 0)
            # Pages are of one moment: the model gives them out of what it holds now, so it holds still in between.
            end = begin + min(int(limit), self.page)
            about |= {"continue": str(end)} if end < len(items) else {}
            items = items[begin:end]
        await says({"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": items})(request, writer)
        if "continue" not in about:
            self.run_changes()

    async def stream(self, since: int, writer: asyncio.StreamWriter) -> None:
        if self.script and self.script[0][0] in {"http 410", "503"}:
            code = 410 if self.script.pop(0)[0] == "http 410" else 503
            await says(status(code, "no"), code)(Request("GET", PODS, {}, {}, b""), writer)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if since < self.oldest:
            _chunk(writer, _line("ERROR", status(410, "too old resource version", "Expired")))
            writer.write(b"0\r\n\r\n")
            return
        sent = since
        while True:
            for version, kind, item in self.history:
                if version > sent:
                    _chunk(writer, _line(kind, item))
                    sent = version
            await writer.drain()
            if not self.script:
                await asyncio.Event().wait()
            if await self.step(writer):
                writer.write(b"0\r\n\r\n")
                return

    async def step(self, writer: asyncio.StreamWriter) -> bool:
        """The next of the script. Whether the stream ends in order; ConnectionError: it is cut."""
        what, how = self.script.pop(0)
        match what:
            case "put" | "delete" | "replace":
                self.act(what, how)
            case "repeat":
                for _, kind, item in self.history[-how:]:
                    _chunk(writer, _line(kind, item))
            case "bookmark":
                _chunk(writer, _line("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))
            case "late":
                await asyncio.sleep(how / 1000)
            case "garbage":
                _chunk(writer, b"{]\n")
            case "end":
                pass
            case _:
                if what == "forget":
                    self.version += 1
                    self.oldest = self.version
                if what == "half":
                    _chunk(writer, _line("ADDED", {"metadata": {"name": "never"}})[: how * 7])
                    await writer.drain()
                raise ConnectionError
        return what in {"garbage", "end"}


def _at(item: dict[str, Any], version: int) -> dict[str, Any]:
    return {"metadata": item["metadata"] | {"resourceVersion": str(version)}}


def _line(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def _chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


def told(changes: list[Change]) -> dict[str, str]:
    """What somebody knows who only heard the changes: name to version. Each must fit what was known before."""
    known: dict[str, dict[str, Any]] = {}
    for one in changes:
        name = one.object["metadata"]["name"]
        assert one.before is known.get(name)
        assert (one.kind == "added") == (name not in known)
        if one.before is not None and one.kind == "modified":
            assert one.before["metadata"]["uid"] == one.object["metadata"]["uid"]
        if one.kind == "deleted":
            del known[name]
        else:
            known[name] = one.object
    return {name: item["metadata"]["resourceVersion"] for name, item in known.items()}


async def play(script: list[tuple[str, Any]], page: int) -> None:
    model, changes = Model(script, page), list[Change]()
    with tempfile.TemporaryDirectory() as folder:
        async with raw_server(model.answer) as server, api_of(server, Path(folder)) as api:
            reflector = Reflector(api, PODS, changed=changes.append, pause=Pause(0.001, 0.004))
            task = asyncio.create_task(reflector.run())
            try:
                async with asyncio.timeout(30):
                    while model.script or _versions(reflector.objects) != _versions(
                        {("a", name): one for name, one in model.held.items()}
                    ):
                        assert not task.done()
                        await asyncio.sleep(0.002)
                    await asyncio.sleep(0.005)  # whatever is still on its way is no change any more
            finally:
                task.cancel()
                async with asyncio.timeout(10):  # whatever it does at that moment, it hears of it
                    await asyncio.gather(task, return_exceptions=True)
            assert told(changes) == {name: version for (_, name), version in _versions(reflector.objects).items()}
            for one in reflector.objects.values():
                assert reflector.by_uid(one["metadata"]["uid"]) is one


def _versions(objects: Any) -> dict[tuple[str, str], str]:
    return {key: one["metadata"]["resourceVersion"] for key, one in objects.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=steps, page=st.integers(1, 3))
def test_in_the_end_it_holds_what_the_server_holds(script: list[tuple[str, Any]], page: int) -> None:
    """Through cuts, halves, repeats, rubbish, 410s and restarts; and the changes it told add up to the same."""
    asyncio.run(play([*script], page))
