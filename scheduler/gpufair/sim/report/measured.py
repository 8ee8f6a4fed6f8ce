"""Figures as parts of the page: the few that answer first, what each allocation got, and tables of everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor

from gpufair.core.words import percent
from gpufair.sim.measures.figures import Account, Figures, Quantiles
from gpufair.sim.measures.table import Row, compare
from gpufair.sim.measures.written import as_json
from gpufair.sim.report.encode import short
from gpufair.sim.report.markup import Cell, Table, cards, folded, paragraph, section, table

_MOST_MARKS = 150  # rows of the chart: what is not there is in its table
_MOST_ROWS = 2_000  # of a table; figures by allocation of a tree of thousands are better asked for as JSON


def headline(figures: Sequence[Figures]) -> str:
    """A card for each policy."""
    return cards([(short(one.policy), list(_answers(one))) for one in figures]) if figures else ""


def _answers(one: Figures) -> Iterator[tuple[str, str]]:
    worst = one.delivered.worst
    yield "delivered of owed", _share(one.delivered.capped)
    yield "worst allocation", _share(worst.delivered) if worst else "–"
    yield "GPU time occupied", _share(one.time.of_available(one.time.held))
    yield "debug wait, p90", _wait(one.waits.by_class["debug"])
    yield "gang wait, longest", _longest(one.waits.by_class["largest_gang"])
    yield "lost and switching", _share(one.time.of_available(one.time.lost), one.time.of_available(one.time.switching))
    yield "protection broken", f"{one.run.protected_preemptions:,}"


def _share(*parts: float | None) -> str:
    known = [part for part in parts if part is not None]
    return f"{100 * sum(known):.1f} %" if known else "–"


def _wait(found: Quantiles) -> str:
    return _seconds(found.p90, "p90" in found.at_least)


def _longest(found: Quantiles) -> str:
    return _seconds(found.longest, "max" in found.at_least)


def _seconds(millis: int | None, at_least: bool) -> str:
    if millis is None:
        return "–"
    return ("≥ " if at_least else "") + lasting(millis / 1000)


def lasting(seconds: float) -> str:
    """A time as people say it, like 20 s, 2.5 min or 3 d."""
    for size, unit in ((172_800, 86_400), (7_200, 3_600), (120, 60)):
        if seconds >= size:
            return f"{seconds / unit:.1f} {_UNITS[unit]}"
    return f"{seconds:.3g} s"


_UNITS = {86_400: "d", 3_600: "h", 60: "min"}


def delivered(figures: Sequence[Figures]) -> str:
    """What each leaf got of what it was owed: the place of the chart, and the table that says the same."""
    leaves = leaves_of(figures)
    if not leaves:
        return ""
    heads = ["allocation", *(short(one.policy) for one in figures), "one grant more or less"]
    rows = [[Cell(short(path)), *(_ratio(one) for one in accounts), _granule(accounts)] for path, accounts in leaves]
    return section(
        "delivered",
        "Delivered of owed, by allocation",
        paragraph(
            "100 %: as much was charged to it as it was owed, that is what it asked for, but no more than it was "
            "entitled to. The band is one grant more or less (its largest gang × the protection asked for): "
            "no policy can be sure to come closer."
            + (f" The {_MOST_MARKS} entitled to most are drawn." if len(leaves) > _MOST_MARKS else "")
        ),
        '<div class="tools"><button type="button" class="png">PNG</button></div>'
        '<ul class="legend key" aria-label="Policies"></ul><div class="grid one"></div>',
        folded("As a table", table(Table("Delivered of owed", heads, rows))),
        kind="charts",
    )


def leaves_of(figures: Sequence[Figures]) -> list[tuple[str, list[Account | None]]]:
    """Each leaf that was owed something, with its account under each policy, those entitled to most first."""
    found: dict[str, list[Account | None]] = {}
    for place, one in enumerate(figures):
        for account in one.delivered.leaves:
            if account.owed:
                found.setdefault(account.path, [None] * len(figures))[place] = account
    entitled = {path: max(one.entitled for one in accounts if one) for path, accounts in found.items()}
    return sorted(found.items(), key=lambda pair: (-entitled[pair[0]], pair[0]))[:_MOST_ROWS]


def chart(figures: Sequence[Figures]) -> list[dict[str, object]]:
    """What the chart of delivered of owed draws, in thousandths."""
    return [
        {
            "path": short(path),
            "ratios": [None if one is None else _thousandths(one.delivered) for one in accounts],
            "granule": max((_thousandths(one.granularity) or 0) for one in accounts if one),
        }
        for path, accounts in leaves_of(figures)[:_MOST_MARKS]
    ]


def _thousandths(ratio: float | None) -> int | None:
    return None if ratio is None else round(1000 * ratio)


def _ratio(account: Account | None) -> Cell:
    ratio = account.delivered if account else None
    return Cell("–") if ratio is None else Cell(_share(ratio), ratio)


def _granule(accounts: Sequence[Account | None]) -> Cell:
    granule = max((one.granularity or 0.0) for one in accounts if one)
    return Cell(f"± {percent(granule)}", granule)


def tables(figures: Sequence[Figures]) -> str:
    """The figures that people compare, and all of them."""
    if not figures:
        return section("figures", "Figures", paragraph("Nothing was measured: the run ended before its warm-up did."))
    names = [short(one.policy) for one in figures]
    compared = [[Cell(row.name), *_cells(row)] for row in compare(figures)]
    every = [[Cell(name), *map(_plain, values)] for name, values in flattened(figures)]
    return section(
        "figures",
        "Figures",
        table(Table("The policies side by side, the best of each row marked", ["figure", *names], compared)),
        folded("All figures", table(Table("As --json writes them", ["figure", *names], every))),
    )


def _cells(row: Row) -> Iterator[Cell]:
    best = row.best
    for place, (value, mark) in enumerate(zip(row.values, row.marks, strict=True)):
        if value is None:
            yield Cell("–")
        else:
            said = lasting(value) if row.unit == "s" else f"{_number(value)} {row.unit}".rstrip()
            yield Cell(f"{mark} {said}".strip(), value, place in best)


def _number(value: float) -> str:
    if floor(value) == ceil(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def flattened(figures: Sequence[Figures]) -> list[tuple[str, list[object]]]:
    """All figures by the path of their keys, in the order of the JSON."""
    found: dict[str, list[object]] = {}
    for place, one in enumerate(figures):
        for name, value in _leaves(as_json(one), ""):
            found.setdefault(name, [None] * len(figures))[place] = value
    return list(found.items())[:_MOST_ROWS]


def _leaves(value: Mapping[str, object], above: str) -> Iterator[tuple[str, object]]:
    for key, part in value.items():
        name = f"{above} › {short(key)}" if above else short(key) or "(all)"
        if isinstance(part, Mapping):
            yield from _leaves(part, name)
        else:
            yield name, part


def _plain(value: object) -> Cell:
    if isinstance(value, bool) or value is None:
        return Cell("–" if value is None else str(value).lower())
    if isinstance(value, int | float):
        return Cell(_number(value), value)
    if isinstance(value, list):
        return Cell(", ".join(str(one) for one in value) or "–")
    return Cell(short(str(value)))
