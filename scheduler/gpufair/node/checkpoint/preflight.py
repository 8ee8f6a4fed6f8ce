"""Can this session be parked? Each variable is pickled into nothing, so what is said here is what a checkpoint would say.

Nothing is written and nothing changes. Large buffers are counted, not read. The time is bounded: what was not reached
is said to be unknown.
"""

from __future__ import annotations

import html
import sys
import time
import warnings
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import IO, Any, cast

from gpufair.node.checkpoint.capture import _candidates
from gpufair.node.checkpoint.pickler import SessionPickler
from gpufair.node.checkpoint.reasons import explain
from gpufair.node.checkpoint.views import Views
from gpufair.workload import runtime
from gpufair.workload.hooks import PARK, hooked

WITHIN_S = 2.0
ASSUMED_BYTES_PER_S = 100e6  # a slow disk, with fsync: 111 MB/s were measured (until the first checkpoint tells)
SLOW_S = 10.0  # a variable that takes longer by itself deserves a look
GREEN, AMBER, RED = "green", "amber", "red"
_PREPARES = f"it prepares itself ({PARK}), so only the checkpoint can tell"
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one variable: ``green`` (comes back), ``amber`` (look at the reason), ``red`` (would be lost).

    ``reason`` says why, and what to do; empty where there is nothing to say.
    """

    name: str
    kind: str
    state: str
    size_bytes: int
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a checkpoint would be like now.

    Attributes:
        variables: Red ones first, then amber ones, then by size.
        size_bytes: Of the whole checkpoint.
        seconds: How long it would take to write.
        measured: Whether ``bytes_per_s`` was measured in this session (else it is assumed).
        taken_s: How long this look took.
        unknown: How many variables could not be looked at in the time given.
    """

    variables: tuple[Verdict, ...]
    size_bytes: int
    seconds: float
    bytes_per_s: float
    measured: bool
    taken_s: float
    unknown: int = 0

    @property
    def parkable(self) -> bool:
        """Whether nothing would be lost, as far as is known."""
        return all(one.state != RED for one in self.variables)

    def as_dict(self, limit: int | None = None) -> dict[str, Any]:
        """As JSON, with at most ``limit`` variables; what is left out is counted."""
        shown = self.variables[:limit]
        return {
            **asdict(self),
            "parkable": self.parkable,
            "variables": [asdict(one) for one in shown],
            "left_out": len(self.variables) - len(shown),
        }

    def __str__(self) -> str:
        rows = [("", "VARIABLE", "TYPE", "SIZE", "SECONDS", "WHAT TO DO")]
        rows += [
            (one.state, one.name, one.kind, _size(one.size_bytes), f"{one.seconds:.2f}", one.reason)
            for one in self.variables[:_SHOWN]
        ]
        widths = [min(max(len(row[column]) for row in rows), 40) for column in range(5)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0), strict=True)).rstrip() for row in rows
        ]
        return "\n".join([self.sentence, "", *lines, *self._rest()])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_DOTS[one.state]}</td><td><code>{html.escape(one.name)}</code></td><td>{html.escape(one.kind)}</td>"
            f"<td>{_size(one.size_bytes)}</td><td>{one.seconds:.2f}</td><td style='text-align:left'>{html.escape(one.reason)}</td></tr>"
            for one in self.variables[:_SHOWN]
        )
        head = "<tr><th></th><th>variable</th><th>type</th><th>size</th><th>seconds</th><th>what to do</th></tr>"
        return f"<p>{html.escape(self.sentence)}</p><table>{head}{rows}</table>" + "".join(
            f"<p>{line}</p>" for line in self._rest()
        )

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        red = sum(one.state == RED for one in self.variables)
        amber = sum(one.state == AMBER for one in self.variables)
        count = f"{len(self.variables)} variables, {_size(self.size_bytes)}"
        speed = f"about {self.seconds:.1f} s at {self.bytes_per_s / 1e6:.0f} MB/s ({'measured' if self.measured else 'assumed'})"
        if red:
            return f"Parking this session would lose {red} of {count}; {speed}."
        doubt = f", {amber} of them in doubt" if amber else ""
        return f"This session can be parked: {count}{doubt}; {speed}."

    def _rest(self) -> list[str]:
        left = len(self.variables) - _SHOWN
        return [f"… and {left} more" if left > 0 else ""][: left > 0]


_DOTS = {GREEN: "🟢", AMBER: "🟠", RED: "🔴"}


def preflight(within_s: float = WITHIN_S) -> Preflight:
    """Whether this session can be parked: each variable with its state, size, seconds and what to do.

    Nothing changes. Call it in a cell by itself, or use ``%gpufair preflight``. Outside a session of gpufair it looks at
    the variables of ``__main__``.

    Args:
        within_s: What was not looked at until then is ``amber``.
    """
    kernel = runtime.current()
    if kernel is not None:
        looked: Preflight = kernel.preflight(within_s)
        return looked
    return look(vars(sys.modules["__main__"]), within_s=within_s)


def look(
    namespace: dict[str, Any],
    names: Collection[str] | None = None,
    *,
    hidden: frozenset[str] = frozenset(),
    bytes_per_s: float | None = None,
    within_s: float = WITHIN_S,
) -> Preflight:
    """See ``preflight``. Main thread, and nobody else may be changing the variables.

    Args:
        namespace: The live variables of the session.
        names: Look at these only.
        hidden: As for ``save``.
        bytes_per_s: Measured write rate; None if there is none yet.
    """
    began = time.monotonic()
    variables = [item for item in _candidates(namespace, hidden) if names is None or item[0] in names]
    speed = bytes_per_s or ASSUMED_BYTES_PER_S
    prepares = {name for name, value in hooked(namespace) if hasattr(type(value), PARK)}
    pass_ = _Pass(namespace, [value for _, value in variables], began + within_s)
    verdicts = []
    unknown = 0
    for name, value in variables:
        kind = type(value).__name__
        try:
            size, problem = pass_.look(name, value)
        except _OutOfTime:
            unknown += 1
            verdicts.append(Verdict(name, kind, AMBER, 0, 0.0, f"not looked at: {within_s:g} s were over"))
            continue
        seconds = size / speed
        if problem:
            state, reason = (AMBER, _PREPARES) if name in prepares else (RED, problem)
        elif seconds > SLOW_S:
            state, reason = AMBER, "large: if it can be computed again soon, delete it before you pause"
        else:
            state, reason = GREEN, _PREPARES if name in prepares else ""
        verdicts.append(Verdict(name, kind, state, size, seconds, reason))
    order = (RED, AMBER, GREEN)
    verdicts.sort(key=lambda one: (order.index(one.state), -one.size_bytes, one.name))
    total = sum(one.size_bytes for one in verdicts)
    return Preflight(
        tuple(verdicts), total, total / speed, speed, bytes_per_s is not None, time.monotonic() - began, unknown
    )


class _OutOfTime(BaseException):
    """Raised inside the pickler."""


class _Nowhere:
    """A file that counts, until the time is over."""

    def __init__(self, deadline: float) -> None:
        self.size, self._deadline = 0, deadline

    def write(self, data: Any) -> int:
        self.count(memoryview(data).nbytes)
        return memoryview(data).nbytes

    def count(self, size: int) -> None:
        self.size += size
        if time.monotonic() > self._deadline:
            raise _OutOfTime


class _Buffers(list[memoryview]):
    """Counts what is appended, and keeps nothing: what a codec copied from a device is free again at once."""

    def __init__(self, into: _Nowhere) -> None:
        super().__init__()
        self._into = into

    def append(self, item: memoryview) -> None:
        self._into.count(item.nbytes)


class _Pass:
    """One pickler for many variables, so that what they share is counted once; a new one after each failure."""

    def __init__(self, namespace: dict[str, Any], values: Iterable[object], deadline: float) -> None:
        self._namespace, self._values = namespace, list(values)
        self._file = _Nowhere(deadline)
        self._pickler = self._fresh()
        self._over = False

    def _fresh(self) -> SessionPickler:
        file, views = cast("IO[bytes]", self._file), Views(self._values, "size")
        return SessionPickler(file, self._namespace, views, _Buffers(self._file))

    def look(self, name: str, value: object) -> tuple[int, str]:
        """Bytes of a variable, and why it cannot be saved (empty: it can). Raises ``_OutOfTime``, from then on always."""
        if self._over:
            raise _OutOfTime
        before = self._file.size
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._pickler.last = value
                self._pickler.dump(value)
        except _OutOfTime:
            self._over = True
            raise
        except BaseException as err:  # noqa: BLE001 - __reduce__ is the user's code and may raise anything
            reason = explain(name, value, self._pickler.last, err)
            self._pickler = self._fresh()  # the memo holds halves of objects, which would pass as whole
            return 0, reason
        return self._file.size - before, ""


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
