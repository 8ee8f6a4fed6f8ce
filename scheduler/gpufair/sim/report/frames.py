"""Everything that the page draws, as one document of plain values: no markup, nothing about how it looks.

Times are ticks since the start of the scenario; ``-1`` stands for "not yet" and "nobody".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, Millis
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.report.closed import closed, eras
from gpufair.sim.report.coarse import Thinned, thinned
from gpufair.sim.report.columns import (
    KINDS,
    NOBODY,
    REASONS,
    Cast,
    Clock,
    bar_columns,
    job_columns,
    landing_columns,
    runs,
)
from gpufair.sim.report.encode import column, short, texts
from gpufair.sim.report.rows import Floor, bars, shades
from gpufair.sim.report.series import Bins, entitled, hundredths, metrics, root_of, usage
from gpufair.sim.report.waits import waits
from gpufair.sim.story import Story

MOST_BINS = 360
MOST_SERIES_VALUES = 600_000  # bins × allocations × policies: a budget tree of thousands gets wider bins


class Frames:
    """The pictures of some stories of one scenario, worked out once; ``document`` writes them at a resolution."""

    def __init__(self, stories: Sequence[Story]) -> None:
        self.stories = stories
        self.scenario = stories[0].scenario
        self.start = self.scenario.start
        self.end = max(*(story.ended_at for story in stories), Instant(self.start + 1))
        self.cluster = Cluster(self.scenario, self.end, {})
        self.floor = Floor(self.cluster)
        self.drawn = [bars(story, self.floor) for story in stories]
        self.shaded = [shades(story, self.floor, drawn) for story, drawn in zip(stories, self.drawn, strict=True)]
        self.eras = list(eras(self.cluster, self.start, self.end))

    def document(self, step: Millis) -> dict[str, object]:
        """What the page draws, at a resolution of ``step``; 0: everything."""
        pictures = [thinned(drawn, step) for drawn in self.drawn]
        cast = Cast.of(self.stories, [picture.bars for picture in pictures], self.eras)
        clock = Clock(self.start, max(1000, step // 8))
        tick = clock.tick
        affordable = MOST_SERIES_VALUES // (len(cast.paths) * len(self.stories))
        bins = Bins.of(self.start, self.end, max(12, min(MOST_BINS, affordable)))
        last = self.eras[-1].tree
        teams = _teams(cast.paths, last)
        return {
            "tick_s": tick / 1000,
            "end": -(-(self.end - self.start) // tick),
            "warm_up": self.scenario.warm_up // tick,
            "epoch_s": None if self.scenario.epoch_s is None else self.scenario.epoch_s + self.start / 1000,
            "name": short(self.scenario.name),
            "gpus": self.scenario.gpus,
            "nodes": {"names": texts([*self.floor.gpus]), "gpus": column(self.floor.gpus.values())},
            "closed": self._closed(clock),
            "teams": [short(team) for team in teams],
            "reasons": [reason.value for reason in REASONS],
            "kinds": [kind.value for kind in KINDS],
            "tree": {
                "paths": texts(cast.paths),
                "team": column(teams.index(root_of(path)) if path else NOBODY for path in cast.paths),
                "leaf": column(int(path not in last or last.is_leaf(path)) for path in cast.paths),
            },
            "jobs": job_columns(cast, clock),
            "bins": {"count": bins.count, "width": bins.width / tick},
            "entitled": _by_path(entitled(self.eras, cast.paths, bins), bins),
            "policies": [self._policy(place, picture, cast, bins, clock) for place, picture in enumerate(pictures)],
        }

    def _closed(self, clock: Clock) -> dict[str, object]:
        spans = [span for span in closed(self.cluster, self.start, self.end) if span.node in self.floor.first]
        return {
            "start": column(clock.ticks(span.start for span in spans)),
            "end": column(clock.ticks(span.end for span in spans)),
            "cordoned": column(int(span.cordoned) for span in spans),
            **runs([((self.floor.first[span.node], self.floor.gpus[span.node]),) for span in spans]),
        }

    def _policy(self, place: int, picture: Thinned, cast: Cast, bins: Bins, clock: Clock) -> dict[str, object]:
        story = self.stories[place]
        used = usage(self.drawn[place], cast.paths, bins)
        held = sum(bar.gpu_time for bar in self.drawn[place])
        return {
            "name": short(story.policy),
            "left_out": picture.left_out,
            "left_out_share": picture.gpu_time / held if held else 0.0,
            "bars": bar_columns(picture.bars, cast, clock),
            "landings": landing_columns(self.shaded[place], cast, clock),
            "charged": _by_path(used.charged, bins),
            "unallocated": _by_path(used.unallocated, bins),
            "metric": [
                {
                    "pool": short(pool),
                    "paths": [cast.paths.index(path) for path in by_path],
                    "values": column(chain(*by_path.values())),
                }
                for pool, by_path in sorted(metrics(story.samples, cast.paths, bins).items())
            ],
            "waits": [
                {
                    "kind": one.kind,
                    "count": len(one.started) + one.waiting,
                    "started": column(count for count, _ in one.points()),
                    "wait_ms": column(min(wait, 2**30) for _, wait in one.points()),
                }
                for one in waits(story)
            ],
        }


def _teams(paths: Sequence[AllocationPath], tree: Tree) -> list[AllocationPath]:
    """The nodes of the top level, those entitled to most first: they get the colours that differ most."""
    tops = [path for path in paths if path and "/" not in path]
    return sorted(tops, key=lambda path: (-tree[path].entitlement if path in tree else 0, path))


def _by_path(sums: Mapping[AllocationPath, Sequence[int]], bins: Bins) -> dict[str, object]:
    """One column: the bins of the first path, then those of the second, and so on."""
    return column(value for row in sums.values() for value in hundredths(row, bins))
