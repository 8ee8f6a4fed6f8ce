"""``[policy]`` and ``[grace]``: the scheduler's options as they are written in the configuration, and back.

Read from the annotations of ``gpufair.core.model.Policy``, so that an option of the core is an option of the file as
soon as it is there. Ranges that only the scheduler knows are checked by the scheduler; what it says is given its line.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from gpufair.core.admission import check_policy
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Policy
from gpufair.core.units import DAY, HOUR, MINUTE, SECOND, Millis
from gpufair.service.settings.durations import format_duration
from gpufair.service.settings.tables import ConfigError, Table, hint, shown
from gpufair.service.settings.toml_source import TomlSource

OFF: Final = "off"
YEAR: Final = Millis(365 * DAY)
_MOST: Final = 1_000_000  # of a number about which nothing better is known

# Narrower than what the type allows: a slip of the pen is met before it is a policy.
_RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "window": (MINUTE, YEAR),
        "max_min_runtime": (SECOND, Millis(30 * DAY)),
        "hysteresis": (0.0, 0.99),
        "victim_band": (0.0, 1.0),
        "grid": (SECOND, HOUR),
        "grid_checkpoint": (SECOND, HOUR),
        "grace_session": (SECOND, HOUR),
        "grace_batch": (SECOND, HOUR),
        "banking": (0.0, 1.0),
    }
)
_GRACE: Final = "grace_"  # these have a table of their own


@dataclass(frozen=True, slots=True)
class Option:
    """One option: where it is written, and how."""

    field: str  # of ``Policy``
    section: str
    key: str
    read: Callable[[Table, str], Any]
    default: str  # as a file would have it

    @property
    def name(self) -> str:
        """As people call it: ``[policy] window``."""
        return f"[{self.section}] {self.key}"


@cache
def options() -> tuple[Option, ...]:
    """All options, in the order in which the core declares them."""
    hints, default = get_type_hints(Policy), Policy()
    found = []
    for one in fields(Policy):
        grace = one.name.startswith(_GRACE)
        value, hint = getattr(default, one.name), hints[one.name]
        found.append(
            Option(
                field=one.name,
                section="grace" if grace else "policy",
                key=one.name.removeprefix(_GRACE) if grace else one.name,
                read=_reader(one.name, hint, value),
                default=written(hint, value),
            )
        )
    return tuple(found)


def read_policy(policy: Table, grace: Table) -> Policy:
    """The options in these two tables; what is not there has its default.

    Raises:
        ConfigError: A value is of the wrong type or out of range, an option is unknown, or they do not go together.
    """
    tables = {"policy": policy, "grace": grace}
    read = Policy(**{one.field: one.read(tables[one.section], one.key) for one in options()})
    if read.max_min_runtime > read.window:
        policy.fail(
            f"max_min_runtime ({format_duration(read.max_min_runtime)}) is longer than "
            f"window ({format_duration(read.window)}); make the window longer or the cap shorter",
            "max_min_runtime" if policy.has("max_min_runtime") else "window",
        )
    try:
        check_policy(read)
    except InvalidSpec as err:
        table, key = _culprit(str(err), tables)
        table.fail(str(err), key)
    policy.finish()
    grace.finish()
    return read


def changed(policy: Policy, settings: Iterable[str], what: str = "--set") -> Policy:
    """A policy with some options set otherwise, as ``window=3d`` or ``take_limit=off``.

    Args:
        policy: What is not named stays as it is there.
        settings: ``OPTION=VALUE``: an option by its name in ``Policy``, a value as a configuration has it, quotes aside.
        what: What errors call the place where they were written.

    Raises:
        ConfigError: There is no such option, its value is wrong or out of range, or they do not go together.
    """
    known = {one.field: one for one in options()}
    source, named = TomlSource(""), set[str]()
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or name not in known:
            why = f"there is no option {shown(name)}{hint(name, known)}" if equals else "it has no '='"
            rule = f"write OPTION=VALUE, where OPTION is one of {', '.join(known)}"
            raise ConfigError(f"{setting[:80]!r}: {why.removesuffix('?')}; {rule}", what, None)
        if name in named:
            raise ConfigError(f"{setting[:80]!r}: {name} is there twice; set it once", what, None)
        named.add(name)
        one = known[name]
        try:
            value = one.read(Table(source, what, (), {one.key: _literal(text)}), one.key)
        except ConfigError as err:
            raise ConfigError(err.message, what, None) from err  # there is no file with lines
        policy = replace(policy, **{name: value})
    try:
        check_policy(policy)
    except InvalidSpec as err:
        raise ConfigError(str(err), what, None) from err
    return policy


def written_option(field: str, value: object) -> str:
    """A value of an option as people type it, without quotes: ``3d``, ``0.25``, ``off``."""
    return written(get_type_hints(Policy)[field], value).strip('"')


def _literal(text: str) -> Any:
    """A value as somebody types it: TOML, or else a string without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _culprit(said: str, tables: Mapping[str, Table]) -> tuple[Table, str | None]:
    """The option that a refusal of the core is about: the first that it names and that is set."""
    words = re.findall(r"\w+", said)
    for word in words:
        for one in options():
            if word in (one.field, one.key) and tables[one.section].has(one.key):
                return tables[one.section], one.key
    return tables["policy"], None


def written(hint: Any, value: object) -> str:
    """A value of an option as TOML has it.

    Examples:
        >>> written(Millis, 28_800_000), written(float, 0.02), written(Millis | None, None)
        ('"8h"', '0.02', '"off"')
    """
    if value is None:
        return f'"{OFF}"'
    hint = _inner(hint)
    if hint is Millis and isinstance(value, int):
        return f'"{format_duration(Millis(value))}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum | str):
        return f'"{value.value if isinstance(value, Enum) else value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(written(get_args(hint)[0], item) for item in value)}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f'"{key}" = {written(get_args(hint)[1], item)}' for key, item in value.items())
        return f"{{{inner}}}" if inner else "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _inner(hint: Any) -> Any:
    """The type without ``| None``."""
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return inner
    return hint


def _reader(name: str, hint: Any, default: Any) -> Callable[[Table, str], Any]:
    inner = _inner(hint)
    read = _plain_reader(name, inner, default)
    optional = inner is not hint

    def or_off(table: Table, key: str) -> Any:
        if optional and (table.raw(key) == OFF or (default is None and not table.has(key))):
            return None
        return read(table, key)

    return or_off


def _plain_reader(name: str, hint: Any, default: Any) -> Callable[[Table, str], Any]:
    if hint is Millis:
        low, high = _RANGES.get(name, (0, YEAR))
        base = Millis(0) if default is None else default
        return lambda table, key: table.duration(key, base, Millis(int(low)), Millis(int(high)))
    if hint is bool:
        return lambda table, key: table.boolean(key, default)
    if hint is int:
        least, most = _RANGES.get(name, (0, _MOST))
        return lambda table, key: table.integer(key, default or 0, int(least), int(most))
    if hint is float:
        small, large = _RANGES.get(name, (0.0, _MOST))
        return lambda table, key: table.number(key, default or 0.0, small, large)
    if isinstance(hint, type) and issubclass(hint, Enum):
        kind: type[Enum] = hint
        return lambda table, key: kind(table.choice(key, default.value, [one.value for one in kind]))
    if hint is str:
        return lambda table, key: table.text(key, default)
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return lambda table, key: table.strings(key) if table.has(key) else default
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return _mapping_reader(default)
    raise NotImplementedError(f"no way to write {name}: {hint} in a configuration")


def _mapping_reader(default: Mapping[str, Any]) -> Callable[[Table, str], Any]:
    def read(table: Table, key: str) -> Mapping[str, float]:
        if not table.has(key):
            return default
        inner = table.table(key)
        values = {name: inner.number(name, 1.0, 0.0, _MOST) for name in sorted(inner.keys)}
        return MappingProxyType(values)

    return read
