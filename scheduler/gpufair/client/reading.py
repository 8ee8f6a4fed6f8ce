"""Reading what the service answers, leniently: an older client understands a newer service.

Unknown fields are dropped, absent ones take their default, but a field of the wrong type is a ``BadAnswer`` that names it.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gpufair.client.errors import BadAnswer

Answer = TypeVar("Answer")


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def read(cls: type[Answer], data: object) -> Answer:
    """``data`` as ``cls``.

    Raises:
        BadAnswer: It is no object, a required field is missing, or a field has the wrong type.
    """
    if not isinstance(data, dict):
        raise BadAnswer(f"{cls.__name__}: expected an object, got {type(data).__name__}")
    values: dict[str, Any] = {}
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy doubts that a class is hashable
    for f in fields(cls):  # type: ignore[arg-type]  # every answer is a dataclass
        value = data.get(f.name)
        required = f.default is MISSING and f.default_factory is MISSING
        if value is None:
            if required:
                raise BadAnswer(f"{cls.__name__}: field {f.name!r} is missing")
            continue  # null and absent both mean "does not apply": the default says how that looks
        values[f.name] = _typed(f"{cls.__name__}.{f.name}", hints[f.name], value)
    return cls(**values)


def read_list(cls: type[Answer], data: object, key: str) -> tuple[Answer, ...]:
    """The objects in ``data[key]``."""
    if not isinstance(data, dict) or not isinstance(data.get(key), list):
        raise BadAnswer(f"expected an object with a list {key!r}, got {str(data)[:80]!r}")
    return tuple(read(cls, item) for item in data[key])


def _typed(where: str, hint: Any, value: object) -> object:
    if isinstance(hint, UnionType):
        return _union(where, hint, value)
    origin = get_origin(hint)
    if (hasattr(hint, "__dataclass_fields__") or origin is dict) and not isinstance(value, dict):
        raise BadAnswer(f"{where}: expected an object, got {type(value).__name__}")
    if hasattr(hint, "__dataclass_fields__"):
        return read(hint, value)
    if origin is tuple:
        return _tuple(where, get_args(hint), value)
    if origin is dict:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise BadAnswer(f"{where}: expected {hint.__name__}, got {type(value).__name__}")
    return value


def _union(where: str, hint: UnionType, value: object) -> object:
    last = BadAnswer(f"{where}: unexpected {type(value).__name__}")
    for choice in get_args(hint):
        if choice is NoneType:
            continue
        try:
            return _typed(where, choice, value)
        except BadAnswer as err:
            last = err
    raise last


def _tuple(where: str, args: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise BadAnswer(f"{where}: expected a list, got {type(value).__name__}")
    if args[-1] is Ellipsis:
        return tuple(_typed(f"{where}[{i}]", args[0], item) for i, item in enumerate(value))
    if len(value) != len(args):
        raise BadAnswer(f"{where}: expected {len(args)} items, got {len(value)}")
    return tuple(_typed(f"{where}[{i}]", arg, item) for i, (arg, item) in enumerate(zip(args, value, strict=True)))
