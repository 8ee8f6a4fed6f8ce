"""What the notebooks here share: the scheduler of the small lab, programs that hold a GPU, and a picture of who had which."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpufair.client import Client, Workload
from gpufair.client.embedded import ensure_service

COLOURS = {"language": "#4477aa", "vision": "#ddaa33"}  # told apart by everybody, in print too


def open_lab() -> Client:
    """The scheduler that JupyterLab has started here, or one that is started now."""
    os.environ.setdefault("GPUFAIR_CONFIG", str(Path(__file__).with_name("gpufair.toml")))
    ensure_service(wait_s=60)
    return Client()


def hold(client: Client, team: str, seconds: float, name: str, protected_s: float | None = None) -> Workload:
    """Submit a program of this team that holds a GPU for a while; protected for all of it unless said otherwise."""
    start_s = 10  # what it may take until the program runs
    program = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    return client.submit(
        {"type": "command", "argv": program, "cwd": str(Path.cwd()), "env": {}},
        name=name, allocation=team, kind="batch", gpus=1, resumable=False, expected_s=seconds,
        min_runtime_s=seconds + start_s if protected_s is None else protected_s,
    )  # fmt: skip


def until(what: Callable[[], object], within_s: float = 90.0) -> float:
    """Wait until ``what()`` is true; returns the seconds that it took."""
    began = time.monotonic()
    while not what():
        if time.monotonic() > began + within_s:
            raise TimeoutError(f"not within {within_s:g} s; `gpufair status` and `gpufair doctor` say how the lab is")
        time.sleep(0.2)
    return time.monotonic() - began


def table(heads: list[str], rows: list[list[object]]) -> str:
    """An HTML table."""

    def line(cells: list, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line(heads, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def picture(client: Client, since_s: float) -> str:
    """Who held which GPU from ``since_s`` on: a row for each GPU, a colour for each team, a red edge where one had to leave."""
    seen = client.history(hours=max(0.01, (time.time() - since_s) / 3600))
    span, width, row = max(1.0, seen.now_s - since_s), 640, 26
    drawn = []
    for at, node in enumerate(seen.nodes):
        drawn.append(f"<text x='0' y='{at * row + 17}' font-size='13' fill='currentColor'>{html.escape(node.name)}</text>")
        for stay in node.stays:
            begin, end = max(stay.from_s, since_s), stay.to_s or seen.now_s
            if end <= since_s:
                continue
            left, long = 70 + (begin - since_s) / span * width, max(1.0, (end - begin) / span * width)
            team = stay.allocation.partition("/")[0]
            said = html.escape(f"{stay.user}, {stay.allocation}: {end - begin:.0f} s")
            drawn.append(
                f"<rect x='{left:.1f}' y='{at * row + 2}' width='{long:.1f}' height='{row - 6}' fill='{COLOURS.get(team, '#888')}'"
                f" stroke='white'><title>{said}</title></rect>"
            )
            if stay.preempted_s:
                x = 70 + (stay.preempted_s - since_s) / span * width
                drawn.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{at * row}' y2='{at * row + row - 2}' stroke='red' stroke-width='3'/>")
    high = len(seen.nodes) * row
    for at, (team, colour) in enumerate(COLOURS.items()):
        drawn.append(f"<rect x='{70 + at * 110}' y='{high + 6}' width='12' height='12' fill='{colour}'/>")
        drawn.append(f"<text x='{88 + at * 110}' y='{high + 17}' font-size='13' fill='currentColor'>{team}</text>")
    drawn.append(f"<text x='{70 + width}' y='{high + 17}' font-size='13' text-anchor='end' fill='currentColor'>{span:.0f} s</text>")
    return f"<svg role='img' aria-label='Who held which GPU' width='{width + 80}' height='{high + 26}'>{''.join(drawn)}</svg>"
