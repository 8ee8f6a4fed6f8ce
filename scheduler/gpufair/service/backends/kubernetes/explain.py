"""Why a pod does not start, or has ended: a plain sentence with the next step, and what is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpufair.core.units import Instant, Millis


class Ending(StrEnum):
    """What a pod's end, or its failure to begin, means for its workload."""

    ENDED = "ended"  # its container ended in order; the agent has said the rest
    ELSEWHERE = "elsewhere"  # through no fault of the workload: it is queued again
    FAILED = "failed"  # the same would happen again: its owner has to change something


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text``: for the workload's owner. ``begun``: whether its container ran at all."""

    ending: Ending
    text: str
    begun: bool = False


def verdict(
    pod: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]] = (),
    *,
    now: Instant,
    start_within: Millis,
    node_lost: bool = False,
) -> Verdict | None:
    """What is to be said of a pod; None: it runs, or may still begin.

    Args:
        events: Of this pod, whatever their order.
        start_within: After so long without a beginning it is given up.
        node_lost: Whether its node is lost, so that what the pod says of itself is old.
    """
    raise NotImplementedError


def waiting(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> str:
    """What a pod that has not begun waits for, as a sentence; "": nothing is known."""
    raise NotImplementedError


def refused(status: int, body: Mapping[str, Any]) -> Verdict:
    """What it means that the API server did not take a pod: quota, a webhook, an invalid field, a missing right."""
    raise NotImplementedError


def gone(pod: Mapping[str, Any] | None) -> Verdict:
    """What it means that a pod is not there any more without having said anything (``pod``: as it was last seen)."""
    raise NotImplementedError
