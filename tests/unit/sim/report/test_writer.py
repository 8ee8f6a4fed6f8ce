"""The file: self-contained, of bounded size, and inert whatever people call their jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpufair.core.model import Allocation, WorkloadSpec
from gpufair.core.units import AllocationPath, Millis, WorkloadId
from gpufair.sim.measures import as_json, compare, measure
from gpufair.sim.report import NothingToReport, write_report, writer
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story
from tests.drawn_stories import scenario, story

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{script}}"


ROW = re.compile(r'<tr><th scope="row">([^<]+)</th>(.*?)</tr>')


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def written(path: Path, stories: list[Story], title: str = "A report") -> str:
    size = write_report(stories, path, title)
    assert size == path.stat().st_size <= writer.MOST_BYTES
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small() -> list[Story]:
    world = scenario(3, 1, 120)
    return [story(world), story(world, "fifo", evict=False)]


def test_nothing_is_fetched_from_anywhere(tmp_path: Path, small: list[Story]) -> None:
    page = written(tmp_path / "report.html", small)
    elements = Elements(page).found
    assert not [tag for tag, attributes in elements if {"src", "href", "srcset", "action"} & attributes.keys()]
    assert not [tag for tag, _ in elements if tag in {"link", "iframe", "object", "embed", "img", "base"}]
    assert not re.findall(r"url\(|@import|\bimport\b|\bfetch\(|https?:|XMLHttpRequest|WebSocket", page)
    assert "default-src 'none'" in page


def test_handlers_are_not_written_into_markup(tmp_path: Path, small: list[Story]) -> None:
    page = written(tmp_path / "report.html", small)
    for tag, attributes in Elements(page).found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag


def renamed(world: Scenario, name: str) -> Scenario:
    """Everything that a trace may name, named so."""

    def spec(one: WorkloadSpec) -> WorkloadSpec:
        return replace(one, name=name, user=name, allocation=AllocationPath(name.replace("/", "|")))

    jobs = [replace(job, id=WorkloadId(f"{name}{place}"), spec=spec(job.spec)) for place, job in enumerate(world.jobs)]
    allocations = (Allocation(AllocationPath(name.replace("/", "|"))),)
    return replace(world, name=name, jobs=jobs, allocations=allocations, notes=(name,) * len(world.notes))


def test_names_stay_text(tmp_path: Path) -> None:
    plain = scenario(3, 1, 60)
    page = written(tmp_path / "plain.html", [story(plain)])
    evil = written(tmp_path / "evil.html", [story(renamed(plain, EVIL), policy=EVIL)], title=EVIL)
    kinds = [tag for tag, _ in Elements(page).found]
    assert [tag for tag, _ in Elements(evil).found if tag not in {"tr", "td", "th", "p"}] == [
        tag for tag in kinds if tag not in {"tr", "td", "th", "p"}
    ]
    assert evil.count("</script>") == page.count("</script>") == 2
    assert "<script>alert" not in evil
    assert "<img" not in evil


def test_the_hashes_are_those_of_what_runs(tmp_path: Path, small: list[Story]) -> None:
    page = written(tmp_path / "report.html", small)
    style = page.partition("<style>")[2].partition("</style>")[0]
    script = page.partition('<script type="module">')[2].partition("</script>")[0]
    csp = next(attributes["content"] for tag, attributes in Elements(page).found if "http-equiv" in attributes)
    assert csp == writer.policy_for(script, style)


def test_every_script_of_the_page_is_written(tmp_path: Path) -> None:
    folder = Path(writer.__file__).parent / "page"
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(writer.SCRIPTS)


def test_a_thousand_gpus_for_a_month_under_six_policies_fit(tmp_path: Path) -> None:
    """Six times the same run: names apart, every policy costs its full size."""
    world = scenario(128, 30, 4_000, length=7.5)
    once = story(world)
    six = [replace(once, policy=f"policy {number}") for number in range(6)]
    page = written(tmp_path / "large.html", six)
    assert world.gpus == 1024
    # 50,000 jobs in place of 4,000 have about that many times the stints.
    assert len(page) * 50 / 4 < writer.MOST_BYTES


def test_a_report_that_is_too_large_leaves_out_what_is_too_short_to_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = story(scenario(8, 30, 2000, length=0.3))
    whole = written(tmp_path / "whole.html", [told])
    assert "too short to be seen" not in whole
    monkeypatch.setattr(writer, "MOST_BYTES", len(whole) - len(whole) // 5)
    page = written(tmp_path / "thin.html", [told])
    assert re.search(r"[\d,]+ stints too short to be seen \([\d.e-]+ % of the GPU time\) are not drawn", page)


def test_every_figure_stands_in_a_table(tmp_path: Path, small: list[Story]) -> None:
    """What a picture shows can be read as well, and what is unknown is not 0."""
    page = written(tmp_path / "report.html", small)
    figures = [measure(one) for one in small]
    compared, _, every = page.partition("All figures")
    rows = dict(ROW.findall(every))
    for key, value in as_json(figures[0]).items():
        if isinstance(value, int | float):
            assert f'data-value="{value!r}"' in rows[key]
    assert rows["delivered_over_owed › capped"].count("<td") == 2
    marked = dict(ROW.findall(compared))
    for row in compare(figures):
        assert marked[row.name].count(" (best)") == len(row.best)


def test_a_run_that_is_all_warm_up_has_pictures_and_no_figures(tmp_path: Path) -> None:
    world = scenario(2, 1, 40)
    page = written(tmp_path / "report.html", [story(replace(world, warm_up=Millis(world.until)))])
    assert "Nothing was measured" in page
    assert 'class="picture"' in page


def test_figures_of_other_runs_are_refused(tmp_path: Path, small: list[Story]) -> None:
    with pytest.raises(NothingToReport, match="not of these runs"):
        write_report(small, tmp_path / "report.html", "A report", figures=[measure(small[1]), measure(small[0])])


def test_what_makes_no_report_is_said(tmp_path: Path, small: list[Story]) -> None:
    path = tmp_path / "report.html"
    other = story(scenario(2, 1, 10))
    for stories, because in (
        ([], "there are none"),
        ([small[0], other], "of different scenarios"),
        ([small[0], small[0]], "'fair-share' is there twice"),
    ):
        with pytest.raises(NothingToReport, match=because):
            write_report(stories, path, "A report")
    assert not path.exists()
