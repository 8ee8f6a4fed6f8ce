"""Events, actions and nouns to plain JSON-able values and back, strictly.

Each class is written as an object with its name under ``type`` and every field by name; reading refuses an unknown
type, an unknown or missing field, and a value of the wrong kind. The journal is made of these, so a change here is a
change of the journal's format.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from gpufair.core import actions, events, ledger, model, record
from gpufair.core.actions import Action
from gpufair.core.errors import GpufairError
from gpufair.core.events import Event

Plain = dict[str, Any]
Reader = Callable[[object, str], Any]


class MalformedRecord(GpufairError):
    """A value cannot be read back: it is not what this version of the core writes."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; it was not written by this version of the scheduler core"


def _dataclasses_of(*modules: types.ModuleType) -> dict[str, type]:
    return {
        name: value
        for module in modules
        for name, value in sorted(vars(module).items())
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    }


EVENTS: Final = MappingProxyType({n: c for n, c in _dataclasses_of(events).items() if c is not Event})
ACTIONS: Final = MappingProxyType({n: c for n, c in _dataclasses_of(actions).items() if c is not Action})
NOUNS: Final = MappingProxyType(_dataclasses_of(model, record, ledger))
TYPES: Final = MappingProxyType({**NOUNS, **EVENTS, **ACTIONS})


def encode(value: object) -> Plain:
    """An event, action or noun as a JSON-able dict with a ``type`` tag."""
    plain = _encode(value)
    if not isinstance(plain, dict) or type(value).__name__ not in TYPES:
        raise MalformedRecord(type(value).__name__, "is no event, action or noun of the core")
    return plain


def decode(plain: Mapping[str, object]) -> object:
    """Read back what ``encode`` wrote.

    Raises:
        MalformedRecord: It is not what ``encode`` writes.
    """
    return _decode(plain)


def _decode(plain: object) -> object:
    if not isinstance(plain, Mapping):
        raise MalformedRecord("value", "is not an object")
    name = plain.get("type")
    if not isinstance(name, str) or name not in TYPES:
        raise MalformedRecord("type", f"{name!r} is unknown")
    return _reader_of(TYPES[name])(plain, name)


def decode_event(plain: Mapping[str, object]) -> Event:
    """Read an event back.

    Raises:
        MalformedRecord: It is not an event that ``encode`` wrote.
    """
    value = decode(plain)
    if not isinstance(value, Event):
        raise MalformedRecord(type(value).__name__, "is not an event")
    return value


def decode_action(plain: Mapping[str, object]) -> Action:
    """Read an action back.

    Raises:
        MalformedRecord: It is not an action that ``encode`` wrote.
    """
    value = decode(plain)
    if not isinstance(value, Action):
        raise MalformedRecord(type(value).__name__, "is not an action")
    return value


def _encode(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {
            name: _encode(getattr(value, name)) for name in _field_names(type(value))
        }
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {_key(key): _encode(item) for key, item in value.items()}
    raise MalformedRecord(type(value).__name__, "cannot be written as JSON")


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise MalformedRecord(repr(key), "is no name of a JSON object")
    return str(key)


@cache
def _reader_of(hint: Any) -> Reader:
    """How to read a value of an annotated type."""
    hint = getattr(hint, "__supertype__", hint)  # a NewType is its base on paper
    hint = getattr(hint, "__supertype__", hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _union(args)
    if origin is tuple:
        return _sequence(_reader_of(args[0])) if args[1:] == (...,) else _fixed([_reader_of(arg) for arg in args])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader_of(args[1]))
    if hint is object:
        return _json
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if is_dataclass(hint):
        return _object(cast(type, hint))
    if hint in {int, float, str, bool}:
        return _scalar(hint)
    raise NotImplementedError(f"no reader for {hint}")


def _scalar(kind: type) -> Reader:
    accepted = (int, float) if kind is float else (kind,)

    def read(plain: object, where: str) -> object:
        # bool is an int to Python, but not to the ledger.
        if not isinstance(plain, accepted) or (isinstance(plain, bool) and kind is not bool):
            raise MalformedRecord(where, f"{plain!r} is not of type {kind.__name__}")
        return plain

    return read


def _enum(kind: type[Enum]) -> Reader:
    def read(plain: object, where: str) -> object:
        try:
            return kind(plain)
        except ValueError:
            known = ", ".join(str(member.value) for member in kind)
            raise MalformedRecord(where, f"{plain!r} is none of {known}") from None

    return read


def _union(args: tuple[Any, ...]) -> Reader:
    (inner,) = (arg for arg in args if arg is not type(None))  # only "X | None" occurs
    read_inner = _reader_of(inner)

    def read(plain: object, where: str) -> object:
        return None if plain is None else read_inner(plain, where)

    return read


def _sequence(item: Reader) -> Reader:
    def read(plain: object, where: str) -> object:
        return tuple(item(each, f"{where}[{index}]") for index, each in enumerate(_list(plain, where)))

    return read


def _fixed(items: list[Reader]) -> Reader:
    def read(plain: object, where: str) -> object:
        values = _list(plain, where)
        if len(values) != len(items):
            raise MalformedRecord(where, f"has {len(values)} items, not {len(items)}")
        return tuple(
            item(each, f"{where}[{index}]") for index, (item, each) in enumerate(zip(items, values, strict=True))
        )

    return read


def _list(plain: object, where: str) -> list[object]:
    if not isinstance(plain, list | tuple):
        raise MalformedRecord(where, f"{plain!r} is not a list")
    return list(plain)


def _mapping(item: Reader) -> Reader:
    def read(plain: object, where: str) -> object:
        if not isinstance(plain, Mapping):
            raise MalformedRecord(where, f"{plain!r} is not an object")
        return MappingProxyType({_key(key): item(each, f"{where}.{key}") for key, each in plain.items()})

    return read


def _json(plain: object, where: str) -> object:
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    if isinstance(plain, list | tuple):
        return [_json(item, where) for item in plain]
    if isinstance(plain, Mapping):
        return {_key(key): _json(item, f"{where}.{key}") for key, item in plain.items()}
    raise MalformedRecord(where, f"{plain!r} is not JSON")


def _object(cls: type) -> Reader:
    hints = get_type_hints(cls)
    readers = {field.name: _reader_of(hints[field.name]) for field in fields(cls)}
    required = {field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING}

    def read(plain: object, where: str) -> object:
        if not isinstance(plain, Mapping):
            raise MalformedRecord(where, f"{plain!r} is not an object")
        if plain.get("type") != cls.__name__:
            raise MalformedRecord(where, f"is of type {plain.get('type')!r}, not {cls.__name__!r}")
        values: dict[str, Any] = {}
        for name, value in plain.items():
            if name == "type":
                continue
            if name not in readers:
                raise MalformedRecord(f"{where}.{name}", "is an unknown field")
            values[name] = readers[name](value, f"{where}.{name}")
        missing = sorted(required - values.keys())
        if missing:
            raise MalformedRecord(where, f"lacks {', '.join(missing)}")
        return cls(**values)

    return read
