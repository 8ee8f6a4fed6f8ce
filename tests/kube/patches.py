"""The three kinds of PATCH."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tests.kube.answers import Refused

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

# Lists that a strategic patch merges by key; it replaces the others.
MERGE_KEYS: Mapping[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "secrets": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
MERGED_VALUES = frozenset({"finalizers"})


def patched(obj: Mapping[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """A new object. Refuses with 400, 415 or 422, as the API server does."""
    kind = content_type.split(";", maxsplit=1)[0].strip()
    if kind == JSON:
        return _json_patched(obj, patch)
    if kind not in {MERGE, STRATEGIC}:
        raise Refused(415, f"the body of the request was in an unknown format - accepted media types include: {JSON}, {MERGE}, {STRATEGIC}")
    if not isinstance(patch, Mapping):
        raise Refused(400, "cannot unmarshal the patch into an object")
    merged = _merged(copy.deepcopy(dict(obj)), patch, strategic=kind == STRATEGIC)
    assert isinstance(merged, dict)
    return merged


def _merged(old: Any, patch: Mapping[str, Any], *, strategic: bool) -> Any:
    if strategic and patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    new = old if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            new[key] = _merged(new.get(key), value, strategic=strategic)
        elif strategic and key in MERGE_KEYS and isinstance(value, list):
            new[key] = _merged_list(new.get(key) or [], value, MERGE_KEYS[key])
        elif strategic and key in MERGED_VALUES:
            new[key] = list(dict.fromkeys([*(new.get(key) or []), *value]))
        elif strategic and key.startswith("$"):
            continue
        else:
            new[key] = copy.deepcopy(value)
    return new


def _merged_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    new = list(old)
    for item in patch:
        place = next((i for i, there in enumerate(new) if there.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del new[place]
        elif place is None:
            new.append(_merged({}, item, strategic=True))
        else:
            new[place] = _merged(copy.deepcopy(new[place]), item, strategic=True)
    return new


def _json_patched(obj: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    if not isinstance(patch, list):
        raise Refused(400, "a JSON patch is a list of operations")
    new: Any = copy.deepcopy(dict(obj))
    for step in patch:
        try:
            new = _step(new, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Refused(422, f"the server rejected our request due to an error in our request: {step}: {error}", "Invalid") from error
    assert isinstance(new, dict)
    return new


def _step(obj: Any, step: Mapping[str, Any]) -> Any:
    op, way = step["op"], _pointer(step["path"])
    if op in {"move", "copy"}:
        source = _pointer(step["from"])
        value = copy.deepcopy(_at(obj, source))
        if op == "move":
            _remove(obj, source)
        _add(obj, way, value)
    elif op == "remove":
        _remove(obj, way)
    elif op == "add":
        _add(obj, way, step["value"])
    elif op == "replace":
        _at(obj, way)
        _remove(obj, way)
        _add(obj, way, step["value"])
    elif op == "test":
        if _at(obj, way) != step["value"]:
            raise ValueError("testing value failed")
    else:
        raise ValueError(f"unknown operation {op}")
    return obj


def _pointer(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no path of a JSON patch")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _at(obj: Any, way: list[str]) -> Any:
    for part in way:
        obj = obj[int(part)] if isinstance(obj, list) else obj[part]
    return obj


def _remove(obj: Any, way: list[str]) -> None:
    inner = _at(obj, way[:-1])
    del inner[int(way[-1]) if isinstance(inner, list) else way[-1]]


def _add(obj: Any, way: list[str], value: Any) -> None:
    inner = _at(obj, way[:-1])
    if not isinstance(inner, list):
        inner[way[-1]] = value
    elif way[-1] == "-":
        inner.append(value)
    else:
        inner.insert(int(way[-1]), value)
