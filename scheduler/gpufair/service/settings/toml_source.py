"""TOML with places: which line a key stands on, so that an error can name it.

``tomllib`` gives values without lines. This reads just enough of the grammar to find keys and table headers: it runs
only on text that ``tomllib`` has accepted.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

Path = tuple[str | int, ...]

_KEY_PART = re.compile(r"""[ \t]*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*""")
_BARE = re.compile(r"[ \t]*[\w-]+[ \t]*=[ \t]*([A-Za-z0-9][\w./-]*)[ \t\r]*(?:#.*)?")
_AT = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)")


class TomlSyntaxError(ValueError):
    """The text is not TOML. ``line`` is where."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class TomlSource:
    """A TOML document and the line of each of its keys.

    Args:
        text: The document.

    Raises:
        TomlSyntaxError: It is not TOML.
    """

    def __init__(self, text: str) -> None:
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as err:
            match = _AT.search(str(err))
            line = int(match[1]) if match and match[1] else text.rstrip("\n").count("\n") + 1
            raise TomlSyntaxError(_AT.sub("", str(err)) + _unquoted(text, line), line) from err
        except ValueError as err:  # Python reads no integers of more than 4300 digits
            raise TomlSyntaxError("it has a number of thousands of digits", 1) from err
        except RecursionError as err:
            raise TomlSyntaxError("it is nested too deeply", 1) from err
        self._lines = _scan(text)

    def line(self, path: Path) -> int:
        """The line (from 1) on which ``path`` is set; if it has none of its own, the line of what holds it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def _unquoted(text: str, line: int) -> str:
    """A hint, if the line has a value like ``7d`` or ``vision/ada`` that only lacks its quotes."""
    lines = text.split("\n")
    found = _BARE.fullmatch(lines[line - 1]) if line <= len(lines) else None
    return f'; write {found[1]} in quotes: "{found[1]}"' if found else ""


def _scan(text: str) -> dict[Path, int]:
    """Where each key and table header stands."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}  # elements of each array of tables so far
    table: Path = ()
    at, line = 0, 1
    while at < len(text):
        char = text[at]
        if char == "\n":
            line += 1
            at += 1
        elif char in " \t\r":
            at += 1
        elif char == "#":
            at = _end_of_line(text, at)
        elif char == "[":
            array = text.startswith("[[", at)
            keys, at = _keys(text, at + (2 if array else 1))
            table = _inside(keys[:-1], counts)
            table = (*table, keys[-1])
            if array:
                counts[table] = counts.get(table, 0) + 1
                table = (*table, counts[table] - 1)
            elif table in counts:
                table = (*table, counts[table] - 1)
            lines.setdefault(table, line)
            at = _end_of_line(text, at)
        else:
            keys, at = _keys(text, at)
            for depth in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:depth]), line)
            end = _end_of_value(text, at)
            line += text.count("\n", at, end)
            at = end
    return lines


def _inside(keys: list[str], counts: dict[Path, int]) -> Path:
    """The path of a header's parents: below an array of tables it means the array's last element."""
    path: Path = ()
    for key in keys:
        path = (*path, key)
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _keys(text: str, at: int) -> tuple[list[str], int]:
    """The dotted key that begins at ``at``, and where it ends."""
    keys: list[str] = []
    while match := _KEY_PART.match(text, at):
        quoted, literal, bare = match.groups()
        keys.append(bare or literal or tomllib.loads(f'k = "{quoted}"')["k"])
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return keys or [""], max(at, 1)


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _end_of_value(text: str, at: int) -> int:
    """The newline that ends the value that begins at ``at``: the first one outside strings and brackets."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            at = _end_of_string(text, at)
            continue
        if char == "#":
            at = _end_of_line(text, at)
            continue
        if char == "\n" and depth <= 0:
            return at
        depth += (char in "[{") - (char in "]}")
        at += 1
    return at


def _end_of_string(text: str, at: int) -> int:
    quote = text[at]
    fence = quote * 3 if text.startswith(quote * 3, at) else quote
    at += len(fence)
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
        elif text.startswith(fence, at):
            at += len(fence)
            # A multi-line string may end in up to two quotes of its own.
            while len(fence) == 3 and text.startswith(quote, at):
                at += 1
            return at
        else:
            at += 1
    return at
