"""The report: one HTML file that holds everything it needs and asks nobody for anything.

Its policy for contents forbids every request, and lets only this page's own script and style run, by their hashes.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import chain
from pathlib import Path

from gpufair.core.errors import GpufairError
from gpufair.core.units import MINUTE, Millis
from gpufair.core.words import span
from gpufair.sim.measures import Figures, NothingToMeasure, measure
from gpufair.sim.policies.registry import CONTENDERS
from gpufair.sim.report.assumed import assumptions
from gpufair.sim.report.encode import short
from gpufair.sim.report.frames import Frames
from gpufair.sim.report.markup import paragraph
from gpufair.sim.report.measured import chart, delivered, headline, tables
from gpufair.sim.story import Story

MOST_BYTES = 10_000_000
# The order in which the parts of the page's one module stand.
SCRIPTS = (
    "decode",
    "theme",
    "times",
    "raster",
    "strip",
    "view",
    "picture",
    "card",
    "gestures",
    "desk",
    "plot",
    "courses",
    "distributions",
    "export",
    "tables",
    "main",
)
_COARSEST = 20  # doublings of a minute: two years


class NothingToReport(GpufairError):
    """Stories that make no report together."""

    def __init__(self, because: str) -> None:
        super().__init__(because)
        self.because = because

    def __str__(self) -> str:
        return (
            f"a report of these runs makes no sense: {self.because}; give runs of one scenario under different policies"
        )


def write_report(stories: Sequence[Story], path: Path, title: str, *, figures: Sequence[Figures] | None = None) -> int:
    """Write the report of some runs of one scenario.

    Args:
        stories: In the order in which they are shown.
        path: Where the file is written; one that is there is replaced.
        title: Its heading.
        figures: What was measured of each, in the same order; None: all after the warm-up is measured here.

    Returns:
        Its size in bytes, at most ``MOST_BYTES``: of what is too short to be seen then, some is left out, and said so.

    Raises:
        NothingToReport: There is none, they are of different scenarios, two have one name, or figures are of others.
        OSError: The file can't be written.
    """
    if figures is None:
        figures = _measured(stories)
    _check(stories, figures)
    frames = Frames(stories)
    page = b""
    for step in _steps():
        page = _page(stories, figures, frames.document(step), title).encode("utf-8", errors="replace")
        if len(page) <= MOST_BYTES:
            break
    path.write_bytes(page)
    return len(page)


def _measured(stories: Sequence[Story]) -> Sequence[Figures]:
    try:
        return [measure(story) for story in stories]
    except NothingToMeasure:  # a run that is shorter than its warm-up has pictures, and no figures
        return []


def _check(stories: Sequence[Story], figures: Sequence[Figures]) -> None:
    if not stories:
        raise NothingToReport("there are none")
    first = stories[0].scenario
    if any(story.scenario is not first and story.scenario != first for story in stories):
        raise NothingToReport("they are of different scenarios")
    names = [story.policy for story in stories]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NothingToReport(f"{', '.join(map(repr, twice))} is there twice")
    if figures and [one.policy for one in figures] != names:
        raise NothingToReport("the figures are not of these runs, in this order")


def _steps() -> chain[Millis]:
    return chain([Millis(0)], (Millis(MINUTE << doublings) for doublings in range(_COARSEST)))


def _page(stories: Sequence[Story], figures: Sequence[Figures], document: dict[str, object], title: str) -> str:
    style = _part("report.css")
    script = "\n".join(_part(f"{name}.js") for name in SCRIPTS)
    return _filled(
        _part("report.html"),
        {
            "csp": policy_for(script, style),
            "title": escape(short(title)),
            "subtitle": escape(_subtitle(stories)),
            "style": style,
            "headline": headline(figures),
            "pictures": "\n".join(_picture(story, place, document) for place, story in enumerate(stories)),
            "delivered": delivered(figures),
            "tables": tables(figures),
            "assumptions": assumptions(stories),
            # A "<" of somebody's job name must not end this element.
            "data": json.dumps(
                document | {"delivered": chart(figures)}, ensure_ascii=True, separators=(",", ":")
            ).replace("<", "\\u003c"),
            "script": script,
        },
    )


def policy_for(script: str, style: str) -> str:
    """The content security policy of a page with this one script and this one style."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"


def _part(name: str) -> str:
    return files("gpufair.sim.report").joinpath("page", name).read_text(encoding="utf-8")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its places filled, all at once: what is filled in is not looked into again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place.group(1)], template)


def _subtitle(stories: Sequence[Story]) -> str:
    scenario = stories[0].scenario
    nodes = sum(1 for node in scenario.nodes if node.gpus)
    return (
        f"{short(scenario.name)}: {scenario.gpus:,} GPUs on {nodes:,} nodes, "
        f"{span(scenario.until - scenario.start)}, {len(scenario.jobs):,} jobs"
    )


def _picture(story: Story, place: int, document: Mapping[str, object]) -> str:
    name = escape(short(story.policy))
    policies = document["policies"]
    assert isinstance(policies, list)
    left_out = policies[place]["left_out"]
    known = CONTENDERS.get(story.policy)
    said = paragraph(known.about) if known else ""
    if left_out:
        share = 100 * policies[place]["left_out_share"]
        said += paragraph(f"{left_out:,} stints too short to be seen ({share:.2g} % of the GPU time) are not drawn.")
    return (
        f'<figure class="picture" aria-label="GPUs × time under {name}"><figcaption><h3>{name}</h3>{said}'
        f'<button type="button" class="png" aria-label="PNG of {name}">PNG</button></figcaption>'
        '<div class="stage"><canvas class="painted" aria-hidden="true"></canvas>'
        f'<canvas class="over" tabindex="0" role="application" aria-describedby="keys" '
        f'aria-label="GPUs × time under {name}: go from stint to stint with the arrow keys"></canvas></div></figure>'
    )
