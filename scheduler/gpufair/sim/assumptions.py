"""What a simulation assumes where no trace says it: read from a file that ships with the package, or from a user's own.

Fields are named as in ``assumptions.toml``, which says what each means; durations carry their unit in their name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

from gpufair.core.errors import GpufairError
from gpufair.core.units import Millis
from gpufair.sim.costs import Costs

MAX_BYTES: Final = 64 << 10
MAX_ENTRIES: Final = 100
_YEAR_S: Final = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Within:
    """What a number of the file may be."""

    least: float
    most: float


Mix = tuple[tuple[float, float], ...]  # (value, how often): a weight counts among the others
Range = tuple[float, float]
Steps = tuple[float, ...]
Seconds = Annotated[float, Within(0, _YEAR_S)]
Share = Annotated[float, Within(0, 1)]
Spread = Annotated[float, Within(1, 100)]  # the factor of one standard deviation of a log-normal draw
Gib = Annotated[float, Within(0.001, 1e5)]
Priority = Annotated[int, Within(-1000, 1000)]
Gpus = Annotated[int, Within(0, 1_000_000)]
GpuMix = Annotated[Mix, Within(1, 1_000_000)]


class AssumptionsError(GpufairError):
    """A file of assumptions is not valid."""

    def __init__(self, file: str, message: str) -> None:
        super().__init__(file, message)
        self.file, self.message = file, message

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """``[costs]``."""

    launch_s: Annotated[Range, Within(0, _YEAR_S)]
    save_s_per_gib: Seconds
    restore_s_per_gib: Seconds
    stop_s: Seconds
    checkpoint_every_s: Seconds

    def engine(self) -> Costs:
        """What the engine charges for starts and stops."""
        least, most = self.launch_s
        return Costs(
            launch_least=millis(least),
            launch_most=millis(most),
            save_per_gib=millis(self.save_s_per_gib),
            restore_per_gib=millis(self.restore_s_per_gib),
            stop=millis(self.stop_s),
            checkpoint_every=millis(self.checkpoint_every_s),
        )


@dataclass(frozen=True, slots=True)
class StateAssumptions:
    """``[state]``."""

    gib: Gib
    growth: Annotated[float, Within(0, 2)]
    spread: Spread
    least_gib: Gib
    most_gib: Gib


@dataclass(frozen=True, slots=True)
class DebugAssumptions:
    """``[debug]``."""

    min_runtime_s: Annotated[float, Within(1, _YEAR_S)]
    priority: Priority
    most_s: Seconds
    most_gpus: Gpus
    share: Share
    median_s: Annotated[float, Within(1, _YEAR_S)]
    spread: Spread
    gpus: GpuMix


@dataclass(frozen=True, slots=True)
class SessionAssumptions:
    """``[session]``."""

    share: Share
    priority: Priority
    min_runtime_s: Annotated[Mix, Within(1, _YEAR_S)]
    idle_release_s: Annotated[float, Within(1, _YEAR_S)]
    least_s: Seconds
    most_gpus: Gpus
    hold_median_s: Annotated[float, Within(60, _YEAR_S)]
    hold_spread: Spread
    busy: Annotated[Range, Within(0.01, 1)]
    long_idle: Share
    long_gap_s: Annotated[float, Within(1, _YEAR_S)]
    short_gap_s: Annotated[float, Within(1, _YEAR_S)]
    gpus: GpuMix


@dataclass(frozen=True, slots=True)
class BatchAssumptions:
    """``[batch]``."""

    priority: Priority
    steps_s: Annotated[Steps, Within(1, _YEAR_S)]
    factor: Annotated[Range, Within(0, 1000)]
    shortest: Share
    longest: Share
    gpu_time: GpuMix
    median_s: Annotated[float, Within(1, _YEAR_S)]
    growth: Annotated[float, Within(0, 2)]
    spread: Spread
    most_s: Annotated[float, Within(60, _YEAR_S)]
    non_resumable: Share
    non_resumable_most_s: Seconds


@dataclass(frozen=True, slots=True)
class UserAssumptions:
    """``[users]``."""

    per_allocation: Annotated[int, Within(1, 100_000)]
    skew: Annotated[float, Within(0, 10)]
    think_s: Seconds


@dataclass(frozen=True, slots=True)
class NodeAssumptions:
    """``[nodes]``."""

    mtbf_d: Annotated[float, Within(0, 1e6)]
    repair_h: Annotated[float, Within(0, 1e5)]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """All of them, one field per table of the file. ``dataclasses.replace`` makes variants for a sweep."""

    costs: CostAssumptions
    state: StateAssumptions
    debug: DebugAssumptions
    session: SessionAssumptions
    batch: BatchAssumptions
    users: UserAssumptions
    nodes: NodeAssumptions


def millis(seconds: float) -> Millis:
    """Seconds of a file as the span that is reckoned with, to the nearest millisecond."""
    return Millis(round(seconds * 1000))


@cache
def usual() -> Assumptions:
    """Those that ship with the package."""
    text = resources.files("gpufair.sim").joinpath("assumptions.toml").read_text(encoding="utf-8")
    return _build(tomllib.loads(text), "assumptions.toml")


def read_assumptions(path: Path) -> Assumptions:
    """Those of a file; what it does not name is as usual.

    Raises:
        AssumptionsError: It can't be read, or holds something else.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as err:
        raise AssumptionsError(str(path), f"cannot be read: {err.strerror or err}") from err
    if len(data) > MAX_BYTES:
        raise AssumptionsError(str(path), f"is larger than {MAX_BYTES:,} bytes; a file of assumptions is a page")
    try:
        return parse_assumptions(data.decode(), str(path))
    except UnicodeDecodeError as err:
        raise AssumptionsError(str(path), "is not UTF-8 text") from err


def parse_assumptions(text: str, file: str = "assumptions") -> Assumptions:
    """Those of a TOML document, on top of the usual ones. ``file`` is what errors call it.

    Raises:
        AssumptionsError: It is not TOML, or names what is unknown or out of range.
    """
    try:
        own = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as err:
        raise AssumptionsError(file, f"is not valid TOML: {err}") from err
    tables = asdict(usual())
    for name, table in own.items():
        if name not in tables:
            raise AssumptionsError(file, f"unknown table [{name}]; known are {', '.join(tables)}")
        if not isinstance(table, dict):
            raise AssumptionsError(file, f"{name} has to be a table, written as [{name}]")
        tables[name] = tables[name] | table
    return _build(tables, file)


def _build(tables: Mapping[str, Mapping[str, Any]], file: str) -> Assumptions:
    parts: dict[str, Any] = {}
    for name, kind in get_type_hints(Assumptions).items():
        table, hints = tables[name], get_type_hints(kind, include_extras=True)
        for key in table:
            if key not in hints:
                raise AssumptionsError(file, f"[{name}] has no {key!r}; it has {', '.join(hints)}")
        parts[name] = kind(**{key: _value(hint, table[key], (file, name, key)) for key, hint in hints.items()})
    built = Assumptions(**parts)
    if built.state.least_gib > built.state.most_gib:
        raise AssumptionsError(file, "[state] least_gib is above most_gib")
    if built.batch.shortest + built.batch.longest > 1:
        raise AssumptionsError(file, "[batch] shortest and longest are shares of the same runs and come to more than 1")
    if sum(part for _, part in built.batch.gpu_time) > 1 + 1e-9:
        raise AssumptionsError(file, "[batch] gpu_time are parts of the same GPU time and come to more than 1")
    return built


def _value(hint: Any, value: object, where: tuple[str, str, str]) -> Any:
    """``value`` as the annotation of its field wants it; ``where`` is file, table and key."""
    base, within = get_args(hint)
    if base == Mix:
        return _mix(value, within, where)
    if base == Range:
        pair = _numbers(value, within, where)
        if len(pair) != 2 or pair[0] > pair[1]:
            raise _error(where, value, "the least and the most, like [15, 60]")
        return pair
    if base == Steps:
        steps = _numbers(value, within, where)
        if not steps or list(steps) != sorted(set(steps)):
            raise _error(where, value, "a list of rising numbers, like [1800, 3600]")
        return steps
    number = _number(value, within, where)
    if base is int and number != int(number):
        raise _error(where, value, "a whole number")
    return base(number)


def _numbers(value: object, within: Within, where: tuple[str, str, str]) -> Steps:
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise _error(where, value, f"a list of at most {MAX_ENTRIES} numbers")
    return tuple(_number(one, within, where) for one in value)


def _mix(value: object, within: Within, where: tuple[str, str, str]) -> Mix:
    pairs = []
    for one in value if isinstance(value, list | tuple) and len(value) <= MAX_ENTRIES else ():
        if not isinstance(one, list | tuple) or len(one) != 2:
            break
        pairs.append((_number(one[0], within, where), _number(one[1], Within(0, 1e12), where)))
    else:
        if sum(often for _, often in pairs):
            return tuple(pairs)
    raise _error(where, value, "pairs of a value and how often it is, not all 0, like [[1, 0.7], [2, 0.3]]")


def _number(value: object, within: Within, where: tuple[str, str, str]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not within.least <= value <= within.most:
        raise _error(where, value, f"a number from {within.least:g} to {within.most:g}")
    return float(value)


def _error(where: tuple[str, str, str], value: object, wanted: str) -> AssumptionsError:
    file, table, key = where
    return AssumptionsError(file, f"[{table}] {key} = {str(value)[:80]}: expected {wanted}")
