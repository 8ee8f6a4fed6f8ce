"""What the service counts while it works, for Prometheus: decisions, their delays, commits, checkpoints.

Counters begin at 0 with each start of the service, as Prometheus expects of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from gpufair.core import actions as act
from gpufair.core import events as ev

_DELAYS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_CHECKPOINTS_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Meter:
    """Counters of one service, in a registry of their own: nothing else of the process is among them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._events = Counter("gpufair_events", "Events that were journalled.", ["event"], registry=self.registry)
        self._decisions = Counter(
            "gpufair_decisions", "Actions that the scheduler decided.", ["action"], registry=self.registry
        )
        self._preemptions = Counter(
            "gpufair_preemptions",
            "Workloads told to give GPUs back, by the right used.",
            ["reason"],
            registry=self.registry,
        )
        self._delay = Histogram(
            "gpufair_decision_delay_seconds",
            "From a request, a report or a due moment to its committed decision.",
            buckets=_DELAYS_S,
            registry=self.registry,
        )
        self._commit = Histogram(
            "gpufair_commit_seconds",
            "How long a commit of the journal took.",
            buckets=_DELAYS_S,
            registry=self.registry,
        )
        self._commits_failed = Counter(
            "gpufair_commits_failed",
            "Commits of the journal that failed; nothing of them happened.",
            registry=self.registry,
        )
        self._checkpoint = Histogram(
            "gpufair_checkpoint_seconds",
            "How long durable checkpoints took.",
            buckets=_CHECKPOINTS_S,
            registry=self.registry,
        )
        self._checkpoint_bytes = Counter(
            "gpufair_checkpoint_bytes", "Bytes of durable checkpoints.", registry=self.registry
        )
        self._checkpoints_failed = Counter(
            "gpufair_checkpoints_failed", "Checkpoints that could not be made.", registry=self.registry
        )

    def committed(self, events: Iterable[ev.Event], actions: Iterable[act.Action], took_s: float) -> None:
        """A turn was committed; the commit alone took ``took_s`` seconds."""
        self._commit.observe(took_s)
        for event in events:
            self._events.labels(type(event).__name__).inc()
            if isinstance(event, ev.CheckpointDone):
                self._checkpoint.observe(event.checkpoint.duration / 1000)
                self._checkpoint_bytes.inc(event.checkpoint.size_bytes)
            elif isinstance(event, ev.CheckpointFailed):
                self._checkpoints_failed.inc()
        for action in actions:
            self._decisions.labels(type(action).__name__).inc()
            if isinstance(action, act.BeginCheckpoint):
                self._preemptions.labels(action.reason.value).inc()

    def waited(self, seconds: float) -> None:
        """Something was decided this long after it was asked for or due."""
        self._delay.observe(max(0.0, seconds))

    def commit_failed(self) -> None:
        """A commit failed."""
        self._commits_failed.inc()
