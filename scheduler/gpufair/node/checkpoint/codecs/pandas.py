"""Pandas: frames that share values lazily (copy on write) know of each other after a restore as well.

Otherwise, where their arrays share memory again, a change of one would be a change of the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpufair.node.checkpoint.codecs.registry import Dump, Reduced


class References:
    """Who shares one array, as pandas counts it. Saved as a new and empty count, which the sharers enter again."""

    def __init__(self, of: Any) -> None:
        self.of = of  # alive, so that its id is not used again

    def __reduce__(self) -> Reduced:
        """See the class."""
        return new_references, ()


def block(obj: Any, dump: Dump) -> Reduced | None:
    """The values of some columns."""
    return _shared(obj, getattr(obj, "refs", None), share_block, dump)


def column(obj: Any, dump: Dump) -> Reduced:
    """The manager of a series, whose own pickling goes around its block."""
    return type(obj), (obj.blocks[0], obj.axes[0])


def index(obj: Any, dump: Dump) -> Reduced | None:
    """The labels of rows or columns."""
    # A range has no values, and its references cannot be set.
    return _shared(obj, vars(obj).get("_references"), share_index, dump)


def _shared(obj: Any, references: Any, make: Any, dump: Dump) -> Reduced | None:
    if references is None or not references.has_reference():
        return None
    function, args = obj.__reduce__()[:2]
    return make, (function, args, dump.once(("pandas", id(references)), lambda: References(references)))


def new_references() -> Any:
    """An empty count of sharers. Called by name from checkpoints."""
    return import_module("pandas._libs.internals").BlockValuesRefs()


def share_block(function: Any, args: Any, references: Any) -> Any:
    """A block that shares its values. Called by name from checkpoints."""
    alone = function(*args)
    return type(alone)(alone.values, alone.mgr_locs, alone.ndim, references)


def share_index(function: Any, args: Any, references: Any) -> Any:
    """An index that shares its values. Called by name from checkpoints."""
    made = function(*args)
    made._references = references  # noqa: SLF001 - as pandas' own constructor does
    references.add_index_reference(made)
    return made
