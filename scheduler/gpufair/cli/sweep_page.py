"""A sweep as one HTML file: its table, and a small chart of each figure. Nothing is loaded, and no script runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import fmean

from gpufair.cli.sweep_points import FIGURES, Figure, Point, shown

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 460, 220, 80, 10, 40
_ASIDE = 6  # so far lines stand beside each other, that equal ones are seen
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#8b6508")
_STYLE = """
:root { color-scheme: light dark; } body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; max-width: 1100px; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .2em .7em; text-align: right; border-bottom: 1px solid #8884; }
.charts { display: flex; flex-wrap: wrap; gap: 1em; } figure { margin: 0; } figcaption { font-weight: 600; }
.legend span { margin-right: 1.5em; } .legend i { display: inline-block; width: 1.5em; height: .25em; margin-right: .5em; vertical-align: middle; }
svg text { fill: currentColor; font: 11px system-ui, sans-serif; } .axis { stroke: currentColor; opacity: .5; }
"""


def page(about: str, varied: Sequence[str], points: Sequence[Point]) -> str:
    """The whole file."""
    figures = [one for one in FIGURES if any(point.mean(one) is not None for point in points)]
    lines = _lines(varied, points)
    legend = "".join(
        f'<span><i style="background: {_colour(number)}"></i>{escape(name)}</span>'
        for number, name in enumerate(lines)
        if name
    )
    seeds = len(points[0].runs)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(about)}</title><style>{_STYLE}</style><h1>{escape(about)}</h1>"
        f"<p>Means over {seeds} seed{'' if seeds == 1 else 's'}; bars reach from the best seed to the worst one. "
        f'From left to right: {escape(varied[0])}.</p><p class="legend">{legend}</p>'
        f'<div class="charts">{"".join(_chart(one, varied[0], lines) for one in figures)}</div>'
        f"{_table(figures, varied, points)}</html>\n"
    )


def _table(figures: Sequence[Figure], varied: Sequence[str], points: Sequence[Point]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (*varied, *(one.name for one in figures)))
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(shown(name, point.values[name]))}</td>" for name in varied)
        + "".join(f"<td>{escape(one.said(point.mean(one)))}</td>" for one in figures)
        + "</tr>"
        for point in points
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _lines(varied: Sequence[str], points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each line: one for each combination of all but the first thing that was varied."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        name = ", ".join(f"{name} {shown(name, point.values[name])}" for name in varied[1:])
        lines.setdefault(name, []).append(point)
    return lines


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _known(figure: Figure, point: Point) -> list[float]:
    return [value for run in point.runs if (value := figure.of(run.figures)) is not None]


def _chart(figure: Figure, across: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """One figure over the values of ``across``."""
    everything = [point for points in lines.values() for point in points]
    places = list(dict.fromkeys(shown(across, point.values[across]) for point in everything))
    known = [value for point in everything for value in _known(figure, point)]
    low, high = min(known), max(known)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = max(0.0, low - pad) if low >= 0 else low - pad, high + pad

    def x(place: int) -> float:
        return _LEFT + (place + 0.5) * (_WIDTH - _LEFT - 10) / len(places)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)

    parts = [f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{_HEIGHT - _BOTTOM}"/>']
    parts += [
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(figure.said(value))}</text>'
        for value in (low, (low + high) / 2, high)
    ]
    parts += [
        f'<text x="{x(place):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(name)}</text>'
        for place, name in enumerate(places)
    ]
    for number, (name, points) in enumerate(lines.items()):
        aside = (number - (len(lines) - 1) / 2) * _ASIDE
        at = [x(places.index(shown(across, point.values[across]))) + aside for point in points]
        parts.append(_line(figure, points, at, y, _colour(number), name))
    return (
        f'<figure><figcaption>{escape(figure.name)}</figcaption><svg role="img" aria-label="{escape(figure.name)}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">{"".join(parts)}</svg></figure>'
    )


def _line(
    figure: Figure, points: Sequence[Point], xs: Sequence[float], y: Callable[[float], float], colour: str, name: str
) -> str:
    marks, path = [], []
    for point, x in zip(points, xs, strict=True):
        values = _known(figure, point)
        if not values:
            continue
        mean = fmean(values)
        title = escape(f"{name}: {figure.said(mean)}" if name else figure.said(mean))
        path.append(f"{x:.1f},{y(mean):.1f}")
        marks.append(
            f'<line x1="{x:.1f}" y1="{y(min(values)):.1f}" x2="{x:.1f}" y2="{y(max(values)):.1f}" stroke="{colour}"/>'
            f'<circle cx="{x:.1f}" cy="{y(mean):.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'
        )
    return f'<polyline points="{" ".join(path)}" fill="none" stroke="{colour}"/>' + "".join(marks)
