"""Classes of the notebook that hold objects of their own kind: ``Point.ORIGIN = Point(0, 0)``.

cloudpickle makes an empty class, loads all its attributes, and then sets them. An instance among those is made before
the class has what makes it. So that goes first here; and no more, for ``__new__`` of a class that makes one object only,
say, would look for attributes which are not there yet.
"""

from __future__ import annotations

from typing import Any

from cloudpickle.cloudpickle import _class_setstate

# What the loading of an instance calls, with what the __setstate__ of a dataclass looks at.
_LOADING = ("__setstate__", "__dataclass_fields__")
_WITH_ARGUMENTS = ("__getnewargs__", "__getnewargs_ex__")


class Loading:
    """Saved as a call that gives a class what loading its instances takes, before the rest of its state is loaded."""

    def __init__(self, of: type, first: dict[str, Any]) -> None:
        self._of, self._first = of, first

    def __reduce__(self) -> tuple[Any, ...]:
        """See the class."""
        return set_loading, (self._of, self._first)


def loading_first(reduced: tuple[Any, ...], cls: type) -> tuple[Any, ...]:
    """What cloudpickle gave for ``cls``, with its state cut in two."""
    attributes, rest = reduced[2]
    names = _LOADING if not any(name in attributes for name in _WITH_ARGUMENTS) else (*_LOADING, "__new__")
    first = {name: attributes[name] for name in names if name in attributes}
    if not first:
        return reduced
    others = {name: value for name, value in attributes.items() if name not in first}
    return (*reduced[:2], (Loading(cls, first), others, rest), None, None, set_attributes)


def set_loading(cls: type, first: dict[str, Any]) -> None:
    """Called by name from checkpoints."""
    for name, value in first.items():
        setattr(cls, name, value)


def set_attributes(cls: type, state: tuple[Any, ...]) -> None:
    """Called by name from checkpoints."""
    _, attributes, rest = state
    _class_setstate(cls, (attributes, rest))
