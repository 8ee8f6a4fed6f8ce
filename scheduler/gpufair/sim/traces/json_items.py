"""Objects of a JSON file, one at a time: of a list, of ``{"records": [...]}`` (or ``entries``), or one after another (JSON Lines)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpufair.sim.traces import fields
from gpufair.sim.traces.errors import TraceTooLarge
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.source import Source

Item = dict[str, Any]
LARGEST: Final = 16 * 1024**2  # characters of one object
_OPENING: Final = re.compile(r'\s*(?:\{(?:\s*"\w+"\s*:\s*(?:"[^"]*"|\d+)\s*,)*\s*"(?:records|entries)"\s*:\s*)?\[')
_BETWEEN: Final = re.compile(r"[\s,]*")


def items(source: Source) -> Iterator[tuple[int, Item]]:
    """Each object, with the line on which it begins.

    Raises:
        TraceError: It is no such file, breaks off, or has an object that is larger than any job.
    """
    pieces, decoder = source.pieces(), json.JSONDecoder()
    text, at, line, count = next(pieces, ""), 0, 1, 0
    if opening := _OPENING.match(text):
        line += text.count("\n", 0, opening.end())
        at = opening.end()
    while True:
        began = _BETWEEN.match(text, at)
        assert began is not None
        line += text.count("\n", at, began.end())
        at = began.end()
        if at == len(text):
            more = next(pieces, None)
            if more is None:
                if opening:
                    raise source.error("its JSON breaks off: the list is not closed; fetch it again", line)
                return
            text, at = more, 0
            continue
        if opening and text[at] == "]":
            return
        if text[at] != "{":
            raise source.error(f"it holds {text[at]!r} where a JSON object should begin", line)
        try:
            item, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as err:
            more = next(pieces, None) if isinstance(err, json.JSONDecodeError) else None
            if more is None:
                raise source.error(f"its JSON is broken ({_reason(err)})", line) from None
            if len(text) - at > LARGEST:
                raise source.error(f"an object in it has more than {LARGEST:,} characters: no job has", line) from None
            text, at = text[at:] + more, 0
            continue
        count += 1
        if count > source.options.max_lines:
            raise TraceTooLarge(str(source.path), "it has more objects", source.options.max_lines, "max_lines", line)
        yield line, item
        line += text.count("\n", at, end)
        at = end


def text_of(item: Mapping[str, Any], key: str) -> str:
    """A text, "" if there is none. Raises ``Wrong``."""
    value = item.get(key)
    if value is None or isinstance(value, str):
        return fields.name(value or "", key)
    raise Wrong(f"{key} is {shown(str(value))}: not a text")


def int_of(item: Mapping[str, Any], key: str, least: int, most: int) -> int:
    """A whole number within bounds. Raises ``Wrong``."""
    value = item.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Wrong(f"{key} is {shown(str(value))}: not a whole number between {least:,} and {most:,}")
    return value


def object_of(item: Mapping[str, Any], key: str) -> Item:
    """An object. Raises ``Wrong``."""
    value = item.get(key)
    if not isinstance(value, dict):
        raise Wrong(f"{key} is {shown(str(value))}: not an object")
    return value


def list_of(item: Mapping[str, Any], key: str) -> list[Any]:
    """A list, empty if there is none. Raises ``Wrong``."""
    value = item.get(key)
    if value is not None and not isinstance(value, list):
        raise Wrong(f"{key} is {shown(str(value))}: not a list")
    return value or []


def _reason(err: Exception) -> str:
    return err.msg if isinstance(err, json.JSONDecodeError) else "it is nested too deeply or has an endless number"
