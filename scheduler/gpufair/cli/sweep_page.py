"""A sweep as one HTML file: its table, and a small chart of each figure. Nothing is loaded, and no script runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from gpufair.cli.sweeping import FIGURES, Figure, shown

if TYPE_CHECKING:
    from gpufair.cli.sweeping import Point

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 460, 220, 70, 40
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_STYLE = """
:root { color-scheme: light dark; } body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; max-width: 1100px; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .2em .7em; text-align: right; border-bottom: 1px solid #8884; }
.charts { display: flex; flex-wrap: wrap; gap: 1em; } figure { margin: 0; } figcaption { font-weight: 600; }
svg text { fill: currentColor; font: 11px system-ui, sans-serif; } .axis { stroke: currentColor; opacity: .5; }
"""


def page(about: str, varied: Sequence[str], points: Sequence[Point]) -> str:
    """The whole file."""
    figures = [one for one in FIGURES if any(point.mean(one) is not None for point in points)]
    head = "".join(f"<th>{escape(name)}</th>" for name in (*varied, *(one.name for one in figures)))
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(shown(name, point.values[name]))}</td>" for name in varied)
        + "".join(f"<td>{escape(one.said(point.mean(one)))}</td>" for one in figures)
        + "</tr>"
        for point in points
    )
    charts = "".join(_chart(one, varied, points) for one in figures)
    seeds = len(points[0].runs)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(about)}</title><style>{_STYLE}</style><h1>{escape(about)}</h1>"
        f"<p>Means over {seeds} seed{'' if seeds == 1 else 's'}; bars show the best and the worst seed. "
        f"Lines: {escape(', '.join(varied[1:]) or 'one')}; from left to right: {escape(varied[0])}.</p>"
        f'<div class="charts">{charts}</div><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></html>\n'
    )


def _chart(figure: Figure, varied: Sequence[str], points: Sequence[Point]) -> str:
    """One figure over the first thing that was varied, a line for each combination of the others."""
    places = list(dict.fromkeys(shown(varied[0], point.values[varied[0]]) for point in points))
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(", ".join(f"{name} {shown(name, point.values[name])}" for name in varied[1:]), []).append(
            point
        )
    known = [value for point in points for run in point.runs if (value := figure.of(run.figures)) is not None]
    low, high = min(known), max(known)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = max(0.0, low - pad) if low >= 0 else low - pad, high + pad

    def x(place: int) -> float:
        return _LEFT + (place + 0.5) * (_WIDTH - _LEFT - 10) / len(places)

    def y(value: float) -> float:
        return 10 + (high - value) / (high - low) * (_HEIGHT - _BOTTOM - 10)

    parts = [f'<line class="axis" x1="{_LEFT}" y1="10" x2="{_LEFT}" y2="{_HEIGHT - _BOTTOM}"/>']
    parts += [
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(figure.said(value))}</text>'
        for value in (low, (low + high) / 2, high)
    ]
    for place, name in enumerate(places):
        parts.append(
            f'<text x="{x(place):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(name)}</text>'
        )
    for number, (name, found) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(
            _line(
                figure,
                found,
                colour,
                [x(places.index(shown(varied[0], one.values[varied[0]]))) for one in found],
                y,
                name,
            )
        )
    return (
        f"<figure><figcaption>{escape(figure.name)}</figcaption>"
        f'<svg role="img" aria-label="{escape(figure.name)}" width="{_WIDTH}" height="{_HEIGHT}">{"".join(parts)}</svg></figure>'
    )


def _line(
    figure: Figure, points: Sequence[Point], colour: str, xs: Sequence[float], y: Callable[[float], float], name: str
) -> str:
    parts, path = [], []
    for point, at in zip(points, xs, strict=True):
        mean = point.mean(figure)
        if mean is None:
            continue
        values = [value for run in point.runs if (value := figure.of(run.figures)) is not None]
        path.append(f"{at:.1f},{y(mean):.1f}")
        parts.append(
            f'<line x1="{at:.1f}" y1="{y(min(values)):.1f}" x2="{at:.1f}" y2="{y(max(values)):.1f}" stroke="{colour}"/>'
        )
        parts.append(
            f'<circle cx="{at:.1f}" cy="{y(mean):.1f}" r="3" fill="{colour}"><title>{escape(f"{name} {figure.said(mean)}")}</title></circle>'
        )
    return f'<polyline points="{" ".join(path)}" fill="none" stroke="{colour}"/>' + "".join(parts)
