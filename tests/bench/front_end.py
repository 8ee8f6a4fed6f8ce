"""What the panels cost in a real Chromium: 1,000 nodes of 8 GPUs, 5,000 who wait, all who run, and who did before.

The lab is the core's, as the service tells of it. A page draws the four sections of the side panel with the built
widgets' code, and asks a server that has the answers ready: what the page itself costs is measured, from the request on.
"""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import sqlalchemy as sa
from playwright.sync_api import CDPSession, Page, sync_playwright

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.identity.auth import Principal, Role
from gpufair.service.insight.history import by_node
from gpufair.service.storage import stays
from gpufair.service.storage.database import metadata
from gpufair.service.web.acting import listed
from gpufair.service.workloads import standin, views
from gpufair.service.workloads.turn import EMPTY
from tests.bench.core_world import Bench, cpu_scale
from tests.bench.result import Result
from tests.e2e.lab import CHROMIUM, CHROMIUM_ARGS

BUILT = Path(__file__).parents[2] / "jupyter_gpufair/labextension"
NODES, QUEUED, WARM_UP, STEPS = 1_000, 5_000, 2_500, 200
PAINTS, UPDATES = 5, 9
BUNDLE_KB, PAINT_S, UPDATE_MS = 400.0, 1.5, 100.0
# Unix seconds at which the core's time begins: an instant of its own is shown as a moment of today.
EPOCH_S = 1_800_000_000
ROWS, CHANGED, LIMIT_MS = 200, 300, 60_000

Answers = dict[str, Any]


class Remembered(Bench):
    """A lab whose stays are kept as the service keeps them."""

    def __post_init__(self) -> None:
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        metadata.create_all(engine)
        self.past = engine.connect()
        super().__post_init__()

    def feed(self, event: ev.Event) -> list[act.Action]:
        actions = super().feed(event)
        for write in stays.of(event, actions, self.state):
            write(self.past)
        return actions

    def history(self) -> Answers:
        """What ``GET /history`` answers."""
        now, move = self.state.now, EPOCH_S * 1000
        found, since = stays.between(self.past, -1, now)
        shifted = [
            replace(
                one,
                granted_ms=one.granted_ms + move,
                up_ms=one.up_ms and one.up_ms + move,
                protected=tuple((begin + move, end + move) for begin, end in one.protected),
                preempted_ms=one.preempted_ms and one.preempted_ms + move,
                freed_ms=min(one.freed_ms + move, stays.STILL),
            )
            for one in found
        ]
        told = {"now_s": now / 1000 + EPOCH_S, "since_s": max(0, since) / 1000 + EPOCH_S}
        return told | {"nodes": by_node(self.state.nodes(), {}, shifted)}


def _since_epoch(value: Any) -> Any:
    """An answer whose instants (``…_s`` of whoever has an ``id`` or a ``name``) are Unix seconds."""
    instants = {
        *("submitted_s", "granted_s", "protected_until_s", "deadline_s", "estimate_s", "start_by_s", "at_s", "until_s"),
        *("now_s", "empty_by_s", "closes_at_s", "last_seen_s"),
    }
    if isinstance(value, list):
        return [_since_epoch(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one + EPOCH_S if key in instants and isinstance(one, int | float) else _since_epoch(one)
        for key, one in value.items()
    }


def _answers(state: State) -> Answers:
    """What the Jupyter server answers, by the last part of the path."""
    places = {workload: place for place, workload in enumerate(state.queue(), 1)}

    def view(workload: WorkloadId) -> dict[str, Any]:
        shown = views.workload_view(state, workload, EMPTY, places.get(workload), state.now)
        return standin.shown(shown | {"suggestion": None}, state, EMPTY, {})

    told = {
        "queue": {"now_s": state.now / 1000, "workloads": [view(workload) for workload in places]},
        "workloads": {"workloads": [view(workload) for workload in state.facts.records]},
        "nodes": {"nodes": views.nodes_view(state, lambda _name: state.now, lambda _name: {})},
        "budgets": views.budgets_view(state),
        "mine": {"sessions": []},
    }
    return {what: _since_epoch(answer) for what, answer in told.items()}


def _asked(answers: Answers, target: str) -> bytes:
    """What is sent for a path with its query: of workloads only those that are wanted, and of them what is wanted."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query))
    answer = answers[url.path.rpartition("/")[2]]
    if "workloads" in answer:
        found = [one for one in answer["workloads"] if one["leases"] or query.get("holding") != "true"]
        answer = answer | {"workloads": listed(found, Principal(Role.OPERATOR, ""), query.get("fields"))}
    return json.dumps(answer).encode()


@cache
def lab() -> tuple[Answers, Answers]:
    """A full lab with its queue, and the same one a minute of much coming and going later."""
    bench = Remembered(nodes=NODES, queued=QUEUED)
    bench.fill()
    for _ in range(WARM_UP):
        bench.step()
    before = _answers(bench.state) | {"history": bench.history()}
    for _ in range(STEPS):
        bench.step()
    return before, _answers(bench.state) | {"history": bench.history()}


# The clock of the lab's day, timers that the bench winds on, and how many answers are not drawn yet.
HOOKS = """
{
  const now = %d;
  Date.now = () => now + performance.now();
  const timers = [];
  window.setInterval = (act, ms) => timers.push([act, ms]);
  window.bench = {asking: 0, refresh: () => timers.filter(([, ms]) => ms > 1000).forEach(([act]) => act())};
  const ask = window.fetch;
  window.fetch = async (...what) => {
    bench.asking += 1;
    const answer = await ask(...what);
    const text = answer.text.bind(answer);
    answer.text = () => text().finally(() => setTimeout(() => (bench.asking -= 1)));
    return answer;
  };
}
"""
PAGE = """
<!DOCTYPE html>
<script id="jupyter-config-data" type="application/json">{"baseUrl": "/"}</script>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/widget.css">
<style>
  body { display: grid; grid-template-rows: repeat(4, 250px); width: 400px; margin: 0; }
  section { overflow: auto; }
</style>
<body>
<script type="module">
  import panel from '/widget.js';
  for (const part of ['sessions', 'queue', 'budgets', 'cluster']) {
    const el = document.body.appendChild(document.createElement('section'));
    panel.render({model: {get: what => (what === 'part' ? part : {})}, el});
  }
</script>
"""
# Resolves in the task after the frame that shows all of it.
DRAWN = """
([nodes, rows, limit]) => new Promise((resolve, reject) => {
  setTimeout(() => reject(Error(document.body.textContent.slice(-300) || 'nothing is drawn')), limit);
  const count = what => document.querySelectorAll(what).length;
  const look = () => {
    if (bench.asking || count('.jp-gpufair-node') < nodes || count('.jp-gpufair-queue li') < rows) {
      setTimeout(look, 5);  // no frames of its own, which would be counted
    } else {
      const after = new MessageChannel();
      after.port1.onmessage = () => resolve(performance.now());
      requestAnimationFrame(() => after.port2.postMessage(null));
    }
  };
  look();
})
"""
# Opens the picture of the past, and has it in sight.
PAST = """
() => new Promise(resolve => {
  const past = document.querySelector('.jp-gpufair-past');
  past.open = true;
  const look = () => {
    past.scrollIntoView();
    document.querySelector('.jp-gpufair-stay') ? resolve() : requestAnimationFrame(look);
  };
  look();
})
"""
SHOWN = "[...document.querySelectorAll('.jp-gpufair-node, .jp-gpufair-queue li, .jp-gpufair-budget')].map(one => one.outerHTML)"


@dataclass
class Desk:
    """A page, and what its server answers now."""

    url: str
    page: Page
    devtools: CDPSession
    answers: Answers
    ready: dict[tuple[int, str], bytes] = field(default_factory=dict)

    def ask(self, target: str) -> bytes:
        """The answer's text, made once."""
        key = id(self.answers), target
        if key not in self.ready:
            self.ready[key] = _asked(self.answers, target)
        return self.ready[key]

    def drawn(self) -> float:
        """Wait until all is shown; seconds since the page was asked for."""
        told: float = self.page.evaluate(DRAWN, [NODES, ROWS, LIMIT_MS])
        return told / 1000

    def busy(self) -> float:
        """Seconds of CPU time that the page's main thread has had."""
        metrics = self.devtools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def shown(self) -> list[str]:
        """The elements of nodes, rows and budgets, as they are."""
        found: list[str] = self.page.evaluate(SHOWN)
        return found


@contextmanager
def desk(answers: Answers) -> Iterator[Desk]:
    """A Chromium whose main thread is timed in CPU time, and the server that its page asks."""
    built = {"/widget.js": "text/javascript", "/widget.css": "text/css"}
    files = {path: (kind, (BUILT / path[1:]).read_bytes()) for path, kind in built.items()}
    files["/"] = ("text/html", PAGE.encode())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, body = files.get(self.path) or ("application/json", open_desk.ask(self.path))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the figures' table readable."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
            page = browser.new_page(viewport={"width": 420, "height": 1000})
            page.add_init_script(HOOKS % (EPOCH_S * 1000))
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            open_desk = Desk(f"http://127.0.0.1:{server.server_port}/", page, devtools, answers)
            yield open_desk
            browser.close()
    finally:
        server.shutdown()
        server.server_close()


def first_paint() -> Result:
    """From the navigation until the four sections are on the screen; the median of some pages."""
    before, _ = lab()
    scale = cpu_scale()
    taken = []
    with desk(before) as it:
        for _ in range(1 + PAINTS):
            it.page.goto(it.url)
            taken.append(it.drawn())
        sent = sum(map(len, it.ready.values()))
    del taken[0]  # for which the answers were made
    scale = (scale + cpu_scale()) / 2
    phases = [one["state"] for one in before["workloads"]["workloads"]]
    notes: dict[str, float | str] = {"limit_unscaled": PAINT_S, "cpu_scale": scale, "slowest_s": max(taken), "pages": PAINTS}
    notes |= {"workloads": len(phases), "queued": phases.count("queued"), "megabytes": sent / 1e6}
    return Result(statistics.median(taken), "s until the panel is painted", PAINT_S * scale, notes=notes)


def update() -> Result:
    """All that the main thread does for an answer in which much has changed: reading, drawing, layout and paint."""
    answers = lab()
    scale = cpu_scale()
    taken = []
    with desk(answers[0]) as it:
        it.page.goto(it.url)
        it.drawn()
        shown = it.shown()
        for count in range(2 + UPDATES):
            it.answers = answers[(count + 1) % 2]
            begun = it.busy()
            it.page.evaluate("bench.refresh()")
            it.drawn()
            taken.append((it.busy() - begun) * 1000)
            if count == 0:
                changed = len(set(shown) - set(it.shown()))
                assert changed > CHANGED, f"only {changed} elements changed"
    del taken[:2]  # for which the answers were made
    scale = (scale + cpu_scale()) / 2
    notes: dict[str, float | str] = {"limit_unscaled": UPDATE_MS, "cpu_scale": scale, "slowest_ms": max(taken), "elements_changed": changed}
    return Result(statistics.median(taken), "ms CPU to update the panel", UPDATE_MS * scale, notes=notes)


def history() -> Result:
    """The same for GPU × time, opened in the cluster's section: reading a row for each of 8,000 GPUs, drawing those in sight."""
    answers = lab()
    scale = cpu_scale()
    taken = []
    with desk(answers[0]) as it:
        it.page.goto(it.url)
        it.drawn()
        it.page.evaluate(PAST)
        it.drawn()
        for count in range(2 + UPDATES):
            it.answers = answers[(count + 1) % 2]
            begun = it.busy()
            it.page.evaluate("document.querySelector('.jp-gpufair-past select').dispatchEvent(new Event('change'))")
            it.drawn()
            taken.append((it.busy() - begun) * 1000)
        tracks, drawn = (it.page.locator(what).count() for what in (".jp-gpufair-track", ".jp-gpufair-stay"))
        assert tracks == NODES, f"{tracks} nodes are shown"
        assert drawn, "no stay is drawn"
    del taken[:2]  # for which the answers were made
    scale = (scale + cpu_scale()) / 2
    told = answers[0]["history"]["nodes"]
    notes: dict[str, float | str] = {"limit_unscaled": UPDATE_MS, "cpu_scale": scale, "slowest_ms": max(taken), "drawn": drawn}
    notes |= {"stays": sum(len(one["stays"]) for one in told), "megabytes": len(json.dumps(told)) / 1e6}
    return Result(statistics.median(taken), "ms CPU to update GPU × time", UPDATE_MS * scale, notes=notes)


def bundle() -> Result:
    """All JavaScript of ours that a page of JupyterLab may load."""
    scripts = sorted((BUILT / "static").glob("*.js"))
    assert any(one.name.startswith("remoteEntry.") for one in scripts), f"nothing is built in {BUILT}"
    return Result(sum(one.stat().st_size for one in scripts) / 1000, "kB of JavaScript", BUNDLE_KB, notes={"files": len(scripts)})


CASES = {"front_end_bundle": bundle, "front_end_first_paint": first_paint, "front_end_update": update, "front_end_history": history}
