"""Reading one table of a TOML file strictly: each value typed and in range, unknown keys refused, every error placed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from gpufair.core.errors import GpufairError
from gpufair.core.units import Millis
from gpufair.service.settings.durations import format_duration, parse_duration
from gpufair.service.settings.sizes import parse_size
from gpufair.service.settings.toml_source import Path as Keys
from gpufair.service.settings.toml_source import TomlSource

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
NAME_RULE = "1 to 64 letters, digits, '.', '_' or '-', beginning and ending with a letter or digit"


class ConfigError(GpufairError):
    """A configuration file is not valid: ``file`` and ``line`` say where, the message what and what is allowed."""

    def __init__(self, message: str, file: str, line: int | None) -> None:
        super().__init__(message, file, line)
        self.message, self.file, self.line = message, file, line

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line is not None else self.file
        return f"{where}: {self.message}"


class Table:
    """One table of a source. Each getter notes its key as known; ``finish`` refuses what is left."""

    def __init__(self, source: TomlSource, file: str, path: Keys, data: object) -> None:
        self._source, self._file, self._path = source, file, path
        self._known: set[str] = set()
        if not isinstance(data, dict):
            self.fail(f"{_dotted(path)} has to be a table", None)
        self._data: dict[str, Any] = data

    @property
    def name(self) -> str:
        """The table as a user writes it."""
        return _dotted(self._path) or "the top level"

    def fail(self, message: str, key: str | int | None) -> NoReturn:
        """Raise a ``ConfigError`` at ``key`` of this table (None: at the table)."""
        path = self._path if key is None else (*self._path, key)
        raise ConfigError(message, self._file, self._source.line(path))

    def has(self, key: str) -> bool:
        """Whether ``key`` is set."""
        self._known.add(key)
        return key in self._data

    @property
    def keys(self) -> tuple[str, ...]:
        """What is set in it, in the order of the file."""
        return tuple(self._data)

    def raw(self, key: str, default: Any = None) -> Any:
        """The value as it is."""
        self._known.add(key)
        return self._data.get(key, default)

    def text(self, key: str, default: str, *, longest: int = 256) -> str:
        """A string without control characters."""
        value = self.raw(key, default)
        if not isinstance(value, str):
            self.fail(f"{key} = {shown(value)}: expected a string in quotes", key)
        if len(value) > longest or any(ord(char) < 32 for char in value):
            self.fail(f"{key} has to be at most {longest} characters without control characters", key)
        return value

    def path(self, key: str, folder: Path) -> Path:
        """The name of a file or folder, which counts from ``folder``; ``~`` is a home."""
        given = self.text(key, "", longest=4096)
        try:
            return (folder / Path(given).expanduser()).absolute()
        except RuntimeError:
            self.fail(f"{key} = {shown(given)}: there is no such user, so there is no home of theirs", key)

    def ident(self, key: str, default: str | None = None) -> str:
        """A name that can stand in a path or an URL; required if there is no default."""
        if default is None and not self.has(key):
            self.fail(f"{self.name} has no {key}; add one: {NAME_RULE}", None)
        value = self.text(key, default or "")
        if NAME.fullmatch(value) is None:
            self.fail(f"{key} = {shown(value)}: a name is {NAME_RULE}", key)
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """An integer in [low, high]."""
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{key} = {shown(value)}: expected an integer from {low} to {high}", key)
        if not low <= value <= high:
            self.fail(f"{key} = {shown(value)} is out of range; allowed are {low} to {high}", key)
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number in [low, high]."""
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"{key} = {shown(value)}: expected a number from {low:g} to {high:g}", key)
        if not low <= value <= high:  # nan too
            self.fail(f"{key} = {shown(value)} is out of range; allowed are {low:g} to {high:g}", key)
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(key, default)
        if not isinstance(value, bool):
            self.fail(f"{key} = {shown(value)}: expected true or false", key)
        return value

    def choice(self, key: str, default: str, allowed: Iterable[str]) -> str:
        """One of ``allowed``."""
        options = list(allowed)
        value = self.text(key, default)
        if value not in options:
            self.fail(f"{key} = {shown(value)}: expected one of {', '.join(options)}{hint(value, options)}", key)
        return value

    def duration(self, key: str, default: Millis, low: Millis, high: Millis) -> Millis:
        """A span of time in [low, high]."""
        if not self.has(key):
            return default
        try:
            span = parse_duration(self._data[key])
        except ValueError as err:
            self.fail(f"{key} = {shown(self._data[key])}: {err}", key)
        if not low <= span <= high:
            self.fail(
                f"{key} = {shown(self._data[key])} is out of range; "
                f"allowed are {format_duration(low)} to {format_duration(high)}",
                key,
            )
        return span

    def size(self, key: str, default: int) -> int:
        """An amount of memory in bytes."""
        if not self.has(key):
            return default
        try:
            return parse_size(self._data[key])
        except ValueError as err:
            self.fail(f"{key} = {shown(self._data[key])}: {err}", key)

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty if there is none."""
        value = self.raw(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(f'{key} = {shown(value)}: expected a list of strings, like ["ada", "bo"]', key)
        return tuple(value)

    def labels(self, key: str) -> dict[str, str]:
        """A table of strings; empty if there is none."""
        value = self.raw(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self.fail(f'{key} has to be a table of strings, like {{rack = "r1"}}', key)
        return dict(value)

    def table(self, key: str) -> Table:
        """The table ``key``; an empty one if there is none."""
        return Table(self._source, self._file, (*self._path, key), self.raw(key, {}))

    def tables(self, key: str) -> list[Table]:
        """The array of tables ``[[key]]``."""
        value = self.raw(key, [])
        if not isinstance(value, list):
            self.fail(f"{key} has to be written as [[{key}]], once for each", key)
        return [Table(self._source, self._file, (*self._path, key, at), item) for at, item in enumerate(value)]

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self._data:
            if key not in self._known:
                known = sorted(self._known)
                self.fail(f"unknown key {key!r} in {self.name}{hint(key, known)}; known are {', '.join(known)}", key)


def hint(value: str, options: Iterable[str]) -> str:
    """``; did you mean 'window'?`` if something allowed is close to ``value``."""
    close = difflib.get_close_matches(value, list(options), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """``value`` for an error: as TOML would write it, shortened."""
    try:
        text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError:  # Python does not write integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _dotted(path: Keys) -> str:
    """``[policy]``, ``[[node]] number 2``."""
    if not path:
        return ""
    if isinstance(path[-1], int):
        return f"[[{'.'.join(str(part) for part in path[:-1])}]] number {path[-1] + 1}"
    return f"[{'.'.join(str(part) for part in path if not isinstance(part, int))}]"
