"""Label selectors and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kube.answers import Refused
from tests.kube.resources import Resource

Matches = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*$")
_THERE = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s!=,()]+)\s*$")


def everything(_: Mapping[str, Any]) -> bool:
    return True


def selected(resource: Resource, labels: str, fields: str) -> Matches:
    """Refuses with 400 what can't be read, and field labels that the resource has not."""
    tests = [_label_test(part) for part in _parts(labels)] + [_field_test(resource, part) for part in _parts(fields)]
    if not tests:
        return everything
    return lambda obj: all(test(obj) for test in tests)


def by_label_selector(selector: Mapping[str, Any]) -> Matches:
    """A `LabelSelector` object: `matchLabels` and `matchExpressions`."""
    parts = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for rule in selector.get("matchExpressions", []):
        key, how = rule["key"], rule["operator"]
        values = ",".join(rule.get("values", []))
        parts.append({"Exists": key, "DoesNotExist": f"!{key}"}.get(how, f"{key} {how.lower()} ({values})"))
    tests = [_label_test(part) for part in parts]
    return lambda obj: all(test(obj) for test in tests)


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _label_test(part: str) -> Matches:
    if found := _SET.match(part):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["how"] == "in":
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    if found := _EQUAL.match(part):
        key, value = found["key"], found["value"]
        if found["how"] == "!=":
            return lambda obj: _labels(obj).get(key) != value
        return lambda obj: _labels(obj).get(key) == value
    if found := _THERE.match(part):
        key, absent = found["key"], bool(found["not"])
        return lambda obj: (key not in _labels(obj)) is absent
    raise Refused(400, f"unable to parse requirement: {part!r}")


def _field_test(resource: Resource, part: str) -> Matches:
    found = _EQUAL.match(part)
    if found is None:
        raise Refused(400, f"invalid selector: '{part}'; can't understand '{part}'")
    key, value, equal = found["key"], found["value"], found["how"] != "!="
    known = ("metadata.name", *(("metadata.namespace",) if resource.namespaced else ()), *resource.fields)
    if key not in known:
        raise Refused(400, f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match label selector "", field selector "{part}": field label not supported: {key}')  # fmt: skip
    way = key.split(".")
    return lambda obj: (_text_at(obj, way) == value) is equal


def _text_at(obj: Any, way: list[str]) -> str:
    """What a field selector compares with: "" where the object says nothing."""
    for step in way:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    if obj is None:
        return "false" if way[-1] == "unschedulable" else ""
    return str(obj)
