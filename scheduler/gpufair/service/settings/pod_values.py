"""What values in a pod may be, and tables whose fields are known: what the checks of a template are made of.

Each check takes what was written and answers why it is wrong, "" if it is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gpufair.service.settings.tables import hint, shown

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
DNS_LABEL: Final = re.compile(_LABEL)
DNS_RULE: Final = "1 to 63 small letters, digits or '-', beginning and ending with a letter or digit"
DNS_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
DNS_NAMES_RULE: Final = f"names joined by dots, each of {DNS_RULE}"
LABEL_KEY: Final = re.compile(rf"(?:(?=[^/]{{1,253}}/){_LABEL}(?:\.{_LABEL})*/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
OURS: Final = "gpufair-"  # how the names of the service's own objects begin
MOST_VALUES: Final = 10_000  # in one field of a template
_MOST_DEPTH: Final = 20
_MOST_NUMBER: Final = (1 << 63) - 1  # that Kubernetes can hold
_MOST_TEXT: Final = 1 << 17

Check = Callable[[Any], str]


def not_plain(given: object) -> str:
    """Of anything: JSON has to be able to say it. YAML also knows dates, keys that are numbers, and lists that hold themselves."""
    rest, count = [(given, 0)], 0
    while rest:
        one, depth = rest.pop()
        count += 1
        if depth > _MOST_DEPTH or count > MOST_VALUES:
            return f"is too large; a field has at most {MOST_VALUES:,} values, {_MOST_DEPTH} deep"
        if isinstance(one, dict):
            if odd := [key for key in one if not isinstance(key, str)]:
                return f"has the key {shown(odd[0])}, which is no string; put it in quotes"
            rest += ((inner, depth + 1) for inner in (*one, *one.values()))
        elif isinstance(one, list):
            rest += ((inner, depth + 1) for inner in one)
        elif why := _odd(one):
            return why
    return ""


def _odd(one: object) -> str:
    """Of what holds nothing else."""
    if isinstance(one, str):
        if len(one) > _MOST_TEXT or "\0" in one or any("\ud800" <= char <= "\udfff" for char in one):
            return f"has a text in it that is longer than {_MOST_TEXT:,} characters or not Unicode"
        return ""
    if one is None or isinstance(one, bool):
        return ""
    if isinstance(one, int):
        return "" if abs(one) <= _MOST_NUMBER else f"has the number {shown(one)} in it, which is larger than Kubernetes can hold"
    if isinstance(one, float):
        return "" if math.isfinite(one) else f"has {one} in it, which is no number for Kubernetes"
    return f"has {shown(one)} in it, which is neither text nor number; put it in quotes"


def each(check: Check) -> Check:
    """A list of tables, of which each has to pass."""

    def wrong(given: Any) -> str:
        if not isinstance(given, list):
            return f"= {shown(given)}: expected a list"
        found = ((at, check(one) if isinstance(one, dict) else "has to be a table") for at, one in enumerate(given, 1))
        return next((f"number {at} {why}" for at, why in found if why), "")

    return wrong


def wrong_fields(one: Mapping[str, Any], known: Mapping[str, Check], needed: Iterable[str] = ()) -> str:
    """Of a table: fields that are not known, miss, or are wrong themselves."""
    for name, value in one.items():
        if name not in known:
            return f"has an unknown field {name!r}{hint(name, known)}; known are {', '.join(known)}"
        if why := known[name](value):
            return f"has {name} = {shown(value)}; {why}"
    return next((f"needs {name}" for name in needed if name not in one), "")


def table_of(known: Mapping[str, Check], *needed: str) -> Check:
    """A field that is a table with these fields."""

    def wrong(given: Any) -> str:
        if not isinstance(given, dict):
            return "it is a table"
        why = wrong_fields(given, known, needed)
        return f"it {why}" if why else ""

    return wrong


def list_of(check: Check) -> Check:
    """A field that is a list."""

    def wrong(given: Any) -> str:
        if not isinstance(given, list):
            return "it is a list"
        return next((why for one in given if (why := check(one))), "")

    return wrong


def one_of(*allowed: str) -> Check:
    """A field that is one of these."""
    return lambda given: "" if isinstance(given, str) and given in allowed else f"it is one of {', '.join(allowed)}"


def number(low: int, high: int = _MOST_NUMBER) -> Check:
    """A field that is an integer."""
    said = f"it is an integer from {low}" + (f" to {high}" if high < _MOST_NUMBER else "")
    return lambda given: "" if type(given) is int and low <= given <= high else said


def text(given: Any) -> str:
    """A field that is a string with something in it."""
    return "" if isinstance(given, str) and given else "it is a string in quotes"


def flag(given: Any) -> str:
    """A field that is true or false."""
    return "" if isinstance(given, bool) else "it is true or false"


def mapping(given: Any) -> str:
    """A field with what Kubernetes knows better than we do."""
    return "" if isinstance(given, dict) else "it is a table"


def object_name(given: Any) -> str:
    """A field that names an object of the pool's namespace."""
    good = isinstance(given, str) and DNS_NAME.fullmatch(given) is not None
    return "" if good else f"Kubernetes takes {DNS_NAMES_RULE}"


def secret_name(given: Any) -> str:
    """A field that names a Secret, the content of which a workload gets to see."""
    if why := object_name(given):
        return why
    return f"names that begin with {OURS} are the service's own, which no workload may read" if given.startswith(OURS) else ""
