"""Answers to questions about what was and what will be: typed like those in ``types``, and read as leniently."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForeseenStep:
    """One thing that happens if nothing new arrives. ``until_s``: end of the protection, or deadline of the notice."""

    at_s: float
    what: str  # "starts", "told to leave", "releases", "queued again", …
    workload: str
    user: str = ""
    allocation: str = ""
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    why: str = ""
    reason: str | None = None
    beneficiary: str | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class ForeseenStart:
    """When a workload that waits now starts first."""

    workload: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Preview:
    """The steps from now until ``until_s``; ``cut`` says why it ends earlier than was asked for."""

    now_s: float = 0.0
    until_s: float = 0.0
    cut: str = ""
    steps: tuple[ForeseenStep, ...] = ()
    starts: tuple[ForeseenStart, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to ask, and what would come of it.

    ``outlook``: "now", "makes room", "start by" (binding), "estimated", "unknown" or "refused"; ``at_s``: when, or None.
    """

    outlook: str
    gpus: int = 0  # per node
    nodes: int = 1
    gpu_type: str = ""
    min_runtime_s: float = 0.0
    at_s: float | None = None
    right: str | None = None
    committed_gpu_s: float = 0.0
    of_budget: float | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Coaching:
    """A wish as it is, other ways to ask, and one sentence of advice."""

    asked: Choice
    choices: tuple[Choice, ...] = ()
    advice: str = ""
    allocation: str = ""
    now_s: float = 0.0
