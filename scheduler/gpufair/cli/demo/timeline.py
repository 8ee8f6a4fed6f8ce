"""Who held which GPU when, told from the service's timeline of decisions: as text, and as one self-contained HTML page."""

from __future__ import annotations

import html
from dataclasses import dataclass

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe-Ito: told apart by everybody
ROW, GAP, LEFT, WIDTH = 34, 10, 150, 860
LETTER = 6.5  # how wide one of the names is, about


@dataclass(frozen=True, slots=True)
class Span:
    """One workload on one node's GPUs in one phase. Instants are Unix seconds."""

    row: str
    workload: str  # what people call it
    team: str
    phase: str
    start_s: float
    end_s: float
    protected_until_s: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, in one sentence."""

    at_s: float
    text: str


def as_text(marks: list[Mark]) -> str:
    """The marks, one a line, in seconds from the first."""
    if not marks:
        return "nothing happened"
    zero = min(mark.at_s for mark in marks)
    return "\n".join(f"{mark.at_s - zero:7.2f} s  {mark.text}" for mark in sorted(marks, key=lambda m: m.at_s))


def as_html(title: str, spans: list[Span], marks: list[Mark], facts: dict[str, str]) -> str:
    """One page without scripts or foreign requests: GPU x time, the marks, and a table of figures."""
    zero = min((span.start_s for span in spans), default=0.0)
    end = max((span.end_s for span in spans), default=1.0)
    teams = {team: COLOURS[i % len(COLOURS)] for i, team in enumerate(sorted({span.team for span in spans}))}
    legend = "".join(
        f'<li><i style="background:{colour}"></i>{html.escape(team)}</li>' for team, colour in teams.items()
    )
    listed = "".join(
        f"<li><b>{mark.at_s - zero:.2f} s</b> {html.escape(mark.text)}</li>"
        for mark in sorted(marks, key=lambda m: m.at_s)
    )
    figures = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in facts.items())
    return _PAGE.format(
        title=html.escape(title),
        picture=_picture(spans, marks, zero, end, teams),
        legend=legend,
        marks=listed,
        facts=figures,
    )


def _picture(spans: list[Span], marks: list[Mark], zero: float, end: float, teams: dict[str, str]) -> str:
    rows = sorted({span.row for span in spans})
    scale = WIDTH / max(end - zero, 1e-9)
    height = len(rows) * (ROW + GAP) + 30
    parts = [f'<svg viewBox="0 0 {LEFT + WIDTH + 10} {height}" role="img" aria-label="GPUs over time">', _PATTERNS]
    for number, row in enumerate(rows):
        parts.append(f'<text class="row" x="0" y="{number * (ROW + GAP) + 22}">{html.escape(row)}</text>')
    for span in spans:
        y = rows.index(span.row) * (ROW + GAP)
        x, wide = LEFT + (span.start_s - zero) * scale, max((span.end_s - span.start_s) * scale, 1.0)
        tip = f"{span.workload}: {span.phase}, {span.start_s - zero:.2f}–{span.end_s - zero:.2f} s"
        parts.append(f'<g><title>{html.escape(tip)}</title><rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{ROW}"')
        parts.append(f' fill="{teams[span.team]}" class="{html.escape(span.phase)}"/>')
        open_from = max(span.protected_until_s, span.start_s)
        if open_from < span.end_s:  # hatched where it may be interrupted
            ox = LEFT + (open_from - zero) * scale
            parts.append(f'<rect x="{ox:.1f}" y="{y}" width="{(span.end_s - open_from) * scale:.1f}" height="{ROW}"')
            parts.append(' fill="url(#open)"/>')
        if span.phase == "checkpointing":
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="3" height="{ROW}" fill="#d00"/>')
        parts.append("</g>")
    # Last, so that nothing is drawn over them: a name may reach from one phase of a stay into the next.
    parts += _names(spans, rows, zero, scale)
    ticks = max(1, round((end - zero) / 8))
    parts += [
        f'<text class="tick" x="{LEFT + tick * scale:.1f}" y="{height - 6}">{tick} s</text>'
        for tick in range(0, int(end - zero) + 1, ticks)
    ]
    return "".join([*parts, "</svg>"])


def _names(spans: list[Span], rows: list[str], zero: float, scale: float) -> list[str]:
    """The name of each workload on each of its stays on a row, where it fits."""
    parts = []
    for row in rows:
        stays: list[tuple[str, float, float]] = []
        for span in sorted((one for one in spans if one.row == row), key=lambda one: one.start_s):
            if stays and stays[-1][0] == span.workload:
                stays[-1] = (span.workload, stays[-1][1], span.end_s)
            else:
                stays.append((span.workload, span.start_s, span.end_s))
        for name, start_s, end_s in stays:
            if (end_s - start_s) * scale > LETTER * len(name):
                x, y = LEFT + (start_s - zero) * scale + 3, rows.index(row) * (ROW + GAP) + 21
                parts.append(f'<text class="in" x="{x:.1f}" y="{y}">{html.escape(name)}</text>')
    return parts


_PATTERNS = (
    '<defs><pattern id="open" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2" height="7" fill="#fff" opacity=".45"/></pattern></defs>'
)

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>
:root {{ color-scheme: light dark; --ink: light-dark(#1b1f24, #e6e6e6); --paper: light-dark(#fff, #16181d) }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--paper) }}
svg {{ width: 100% }} svg text {{ fill: var(--ink); font-size: 13px }} svg text.in {{ fill: #fff }}
svg text.tick {{ font-size: 11px }} rect.starting, rect.restoring {{ opacity: .55 }} rect.checkpointing, rect.stopping {{ opacity: .75 }}
ul {{ padding: 0; list-style: none }} ul.legend li {{ display: inline-block; margin-right: 1.5rem }}
ul.legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .4em }}
th {{ text-align: left; font-weight: 500; padding-right: 2rem }} td {{ font-variant-numeric: tabular-nums }}
</style><h1>{title}</h1>{picture}
<ul class="legend">{legend}<li>pale: starting or restoring</li><li>hatched: may be interrupted</li><li>red edge: preempted</li></ul>
<h2>What happened</h2><ul>{marks}</ul><h2>Figures</h2><table>{facts}</table></html>
"""
