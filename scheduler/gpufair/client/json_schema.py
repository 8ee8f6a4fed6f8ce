"""JSON Schema of dataclasses that describe answers.

All fields are required but those that are marked (``gpufair.client.marks``): an answer has them whatever their defaults, which
only say how a client that is older or newer than its service reads one without.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from gpufair.client.marks import ONE_OF, PARTS, SOMETIMES

Schema = dict[str, Any]
REF: Final = "#/components/schemas/"
_PLAIN: Final[dict[Any, Schema]] = {
    Any: {},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
}


def components(roots: Iterable[type]) -> dict[str, Schema]:
    """The schemas of ``roots`` and of all that is in them, by name.

    Raises:
        ValueError: Two classes have one name.
    """
    found: dict[str, Schema] = {}
    made: dict[str, type] = {}
    waiting = list(roots)
    while waiting:
        cls = waiting.pop()
        if made.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"two kinds of answer are called {cls.__name__}: {cls.__module__}, {made[cls.__name__].__module__}")
        if cls.__name__ in found:
            continue
        found[cls.__name__] = schema_of(cls)
        for inner, in_parts in _inside(cls):
            waiting.append(inner)
            if in_parts:
                whole = schema_of(inner)
                found[f"{inner.__name__}Part"] = whole | {"title": f"{inner.__name__}Part", "required": []}
    return found


def inlined(cls: type) -> Schema:
    """The schema of one class with those of its parts in their places, for who cannot follow references."""
    known = components([cls])

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return whole(known[value["$ref"].removeprefix(REF)])
        return {key: whole(one) for key, one in value.items()}

    found: Schema = whole(known[cls.__name__])
    return found


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def schema_of(cls: type) -> Schema:
    """The schema of one class; others are referred to by name."""
    hints, told = _hints(cls), fields(cls)
    return {
        "title": cls.__name__,
        "description": " ".join((inspect.getdoc(cls) or "").replace("``", "`").split()),
        "type": "object",
        "properties": {one.name: _field(one, hints[one.name]) for one in told},
        "required": [one.name for one in told if not one.metadata.get(SOMETIMES)],
    }


def _field(one: Field[Any], hint: Any) -> Schema:
    schema = _type(hint, in_parts=bool(one.metadata.get(PARTS)))
    if words := one.metadata.get(ONE_OF):
        known = [*words, None] if NoneType in get_args(hint) else list(words)
        schema = {"enum": known}
    return schema


def _type(hint: Any, *, in_parts: bool = False) -> Schema:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if is_dataclass(hint):
        whole = {"$ref": f"{REF}{hint.__name__}"}  # type: ignore[union-attr]  # a class, no instance
        return {"anyOf": [whole, {"$ref": f"{whole['$ref']}Part"}]} if in_parts else whole
    origin, args = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return {"anyOf": [_type(arg) for arg in args]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(args[1]) or True}
    if origin is tuple and args[-1] is Ellipsis:
        return {"type": "array", "items": _type(args[0], in_parts=in_parts)}
    if origin is tuple:
        items = [_type(arg) for arg in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    raise TypeError(f"no schema for {hint}")


def _inside(cls: type) -> Iterator[tuple[type, bool]]:
    hints = _hints(cls)
    for one in fields(cls):
        waiting = [hints[one.name]]
        while waiting:
            hint = waiting.pop()
            if is_dataclass(hint):
                yield hint, bool(one.metadata.get(PARTS))  # type: ignore[misc]  # a class, no instance
            waiting += get_args(hint)
