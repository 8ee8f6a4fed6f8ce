"""Errors a caller can handle. Facts are attributes; the sentence says what was asked, what is true, what to do."""

from __future__ import annotations

from gpufair.core.units import AllocationPath, Millis, WorkloadId


class GpufairError(Exception):
    """Base of every error of this project."""


class UnknownWorkload(GpufairError):
    """No such workload."""

    def __init__(self, workload: WorkloadId) -> None:
        super().__init__(workload)
        self.workload = workload

    def __str__(self) -> str:
        return (
            f"there is no workload {self.workload!r}; `gpufair queue` and `gpufair sessions list` show the known ones"
        )


class UnknownNode(GpufairError):
    """No such node."""

    def __init__(self, node: str, known: tuple[str, ...]) -> None:
        super().__init__(node)
        self.node, self.known = node, known

    def __str__(self) -> str:
        return f"there is no node {self.node!r}; known nodes: {', '.join(self.known) or 'none'}"


class NodeNotLost(GpufairError):
    """A node that is there cannot be forgotten."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node

    def __str__(self) -> str:
        return (
            f"node {self.node!r} cannot be removed: it is there; drain it, switch it off (or end its agent), and remove "
            "it when it is lost"
        )


class UnknownAllocation(GpufairError):
    """A workload named an allocation that is not a leaf of the budget tree."""

    def __init__(self, path: AllocationPath, leaves: tuple[AllocationPath, ...]) -> None:
        super().__init__(path)
        self.path, self.leaves = path, leaves

    def __str__(self) -> str:
        known = ", ".join(self.leaves[:8]) + (", …" if len(self.leaves) > 8 else "")
        return f"allocation {self.path!r} is not a leaf of the budget tree; choose one of: {known or 'none is defined'}"


class NotAMember(GpufairError):
    """The user may not submit to this allocation."""

    def __init__(self, user: str, path: AllocationPath, allowed: tuple[AllocationPath, ...]) -> None:
        super().__init__(user, path)
        self.user, self.path, self.allowed = user, path, allowed

    def __str__(self) -> str:
        own = ", ".join(self.allowed) or "none"
        return (
            f"user {self.user!r} is not a member of allocation {self.path!r}; allocations open to {self.user!r}: {own}"
        )


class MinRuntimeTooLong(GpufairError):
    """More protection was asked for than the cap allows."""

    def __init__(self, asked: Millis, cap: Millis) -> None:
        super().__init__(asked, cap)
        self.asked, self.cap = asked, cap

    def __str__(self) -> str:
        return (
            f"min_runtime of {self.asked / 1000:g} s was asked for but max_min_runtime is {self.cap / 1000:g} s; "
            f"ask for at most {self.cap / 1000:g} s: the workload may run longer, it is then preemptible and resumes"
        )


class NeverFits(GpufairError):
    """No set of nodes of the accepted pools could ever hold this shape."""

    def __init__(self, asked: str, largest: str, ruled_out_by: str = "") -> None:
        super().__init__(asked, largest, ruled_out_by)
        self.asked, self.largest, self.ruled_out_by = asked, largest, ruled_out_by

    def __str__(self) -> str:
        drop = f", or drop {self.ruled_out_by}: without it it would fit" if self.ruled_out_by else ""
        what = "ask for less" if drop else "ask for less or for another type"
        return f"{self.asked} was asked for but the largest that fits is {self.largest}; {what}{drop}"


class InvalidSpec(GpufairError):
    """A workload makes no sense (negative GPUs, say)."""


class WrongPhase(GpufairError):
    """The request does not fit where the workload is in its life."""

    def __init__(self, workload: WorkloadId, phase: str, asked: str, instead: str) -> None:
        super().__init__(workload, phase, asked)
        self.workload, self.phase, self.asked, self.instead = workload, phase, asked, instead

    def __str__(self) -> str:
        return f"cannot {self.asked} workload {self.workload!r}: it is {self.phase}; {self.instead}"


class ExtensionRefused(GpufairError):
    """A workload asked to be protected longer, and somebody else comes first."""

    def __init__(self, workload: WorkloadId, because: str, until: str) -> None:
        super().__init__(workload, because, until)
        self.workload, self.because, self.until = workload, because, until

    def __str__(self) -> str:
        return (
            f"workload {self.workload!r} cannot be protected longer than until {self.until}: {self.because}; it runs on "
            "until somebody needs its GPUs, and may ask again when nobody comes first"
        )


class BudgetError(GpufairError):
    """A budget tree is not valid. ``line`` is the line of the file, where one is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.args[0]}"


class Inconsistent(GpufairError):
    """``State.validate`` found a broken invariant: a bug, never the world."""
