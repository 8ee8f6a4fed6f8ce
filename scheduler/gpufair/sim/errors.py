"""Why a scenario cannot be made. Errors of traces, clusters and assumptions are with their subjects."""

from __future__ import annotations

from gpufair.core.errors import GpufairError


class ScenarioError(GpufairError):
    """What was asked for is no scenario: a demand of nothing, or more days than the trace has."""


class UnknownProjects(ScenarioError):
    """Projects of a trace that are no leaves of the budget tree that was given."""

    def __init__(self, projects: tuple[str, ...], leaves: tuple[str, ...]) -> None:
        super().__init__(projects, leaves)
        self.projects, self.leaves = projects, leaves

    def __str__(self) -> str:
        return (
            f"{_some(self.projects)} of the trace {'is' if len(self.projects) == 1 else 'are'} no leaf of the budget "
            f"tree ({_some(self.leaves)}); add an [[allocation]] with such a path or last name, add one with the path "
            "'other', which takes all the rest, or leave the budgets out to have them drawn from the trace"
        )


class TooLarge(ScenarioError):
    """Jobs of a trace that ask for more than the cluster could ever give."""

    def __init__(self, jobs: tuple[str, ...], cluster: str) -> None:
        super().__init__(jobs, cluster)
        self.jobs, self.cluster = jobs, cluster

    def __str__(self) -> str:
        one = len(self.jobs) == 1
        return (
            f"{len(self.jobs):,} job{'' if one else 's'} of the trace can never run on {self.cluster}: {_some(self.jobs, 3)}; "
            "take a larger cluster, or have such jobs clipped to the largest that fits (clip), or left out (skip)"
        )


def _some(names: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
