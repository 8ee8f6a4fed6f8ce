"""The registry of codecs: which function saves objects of which type, and what is shared during one dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

from gpufair.core.errors import GpufairError
from gpufair.node.checkpoint.reasons import NotSavable
from gpufair.node.checkpoint.views import Views

# What ``__reduce__`` may return.
Reduced = tuple[Any, ...] | str
UserCodec = Callable[[Any], Reduced]
Function = TypeVar("Function", bound=UserCodec)


class Dump:
    """What the codecs of one pass have in common.

    Attributes:
        views: Which arrays share memory.
    """

    def __init__(self, views: Views) -> None:
        self._notes: dict[str, None] = {}
        self.views = views
        self._shared = views.shared

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The object for ``key``, made at the first call and alive to the end of all passes: the memo knows it again."""
        try:
            return self._shared[key]
        except KeyError:
            return self._shared.setdefault(key, make())

    def note(self, text: str) -> None:
        """Tell the owner of the variable that is being saved; once for each."""
        self._notes[text] = None

    def take_notes(self) -> list[str]:
        """The notes since the last call."""
        taken = list(self._notes)
        self._notes.clear()
        return taken


# A built-in codec; None stands for "as pickle would".
Codec = Callable[[Any, Dump], Reduced | None]

# Type -> "module:function" in this package. Looked up for each type once in a dump, along its bases.
_BUILT_IN: dict[str, str] = {
    "builtins.cell": "python:cell",
    "functools._lru_cache_wrapper": "python:cached",
    "functools.cached_property": "python:cached_property",
    "_struct.Struct": "python:compiled_format",
    "weakref.ReferenceType": "python:weak_reference",
    "weakref.ProxyType": "python:weak_proxy",
    "weakref.CallableProxyType": "python:weak_proxy",
    "_weakrefset.WeakSet": "python:weak_set",
    "weakref.WeakValueDictionary": "python:weak_mapping",
    "weakref.WeakKeyDictionary": "python:weak_mapping",
    "builtins.dict_keys": "python:dict_view",
    "builtins.dict_values": "python:dict_view",
    "builtins.dict_items": "python:dict_view",
    "builtins.odict_keys": "python:dict_view",
    "builtins.odict_values": "python:dict_view",
    "builtins.odict_items": "python:dict_view",
    "builtins.mappingproxy": "python:mapping_proxy",
    "ipykernel.iostream.OutStream": "python:standard_stream",
    "IPython.core.interactiveshell.InteractiveShell": "python:shell",
    "_io.FileIO": "files:open_file",
    "_io.BufferedReader": "files:open_file",
    "_io.BufferedWriter": "files:open_file",
    "_io.BufferedRandom": "files:open_file",
    "_io.TextIOWrapper": "files:open_file",
    "numpy.ndarray": "numpy:array",
    "numpy.memmap": "numpy:memory_map",
    "pandas._libs.internals.Block": "pandas:block",
    "pandas.core.internals.managers.SingleBlockManager": "pandas:column",
    "pandas.Index": "pandas:index",
    "pandas.core.indexes.base.Index": "pandas:index",
    "torch.Tensor": "torch:tensor",
    "torch.storage.UntypedStorage": "torch:untyped_storage",
    "torch.storage.TypedStorage": "torch:typed_storage",
    "torch.device": "torch:device",
    "torch._C.Generator": "torch:generator",
    "torch.jit._script.RecursiveScriptModule": "torch:script",
    "torch.jit.ScriptFunction": "torch:script",
    "jaxlib._jax.ArrayImpl": "jax:array",
    "jaxlib.xla_extension.ArrayImpl": "jax:array",
    "jax._src.array.ArrayImpl": "jax:array",
    "jaxlib._jax.Device": "jax:device",
    "jaxlib.xla_extension.Device": "jax:device",
    "cupy.ndarray": "cupy:array",
}
_user: dict[str, UserCodec] = {}


class NoCodec(GpufairError):
    """What was given to ``codec`` is no type."""

    def __init__(self, kind: object) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return f"a codec is for a type, or for its name as 'module.Type', not for {self.kind!r}"


def codec(kind: type | str) -> Callable[[Function], Function]:
    """Have the decorated function save objects of ``kind`` and of its subclasses in checkpoints.

    The function gets the object and returns what a ``__reduce__`` would: a callable and the tuple of its arguments,
    which together make the object again, and optionally a state. What it raises is told as the reason why the object
    was not saved. A function of the notebook is saved along, so that it is there after a restore as well.

    Args:
        kind: The type, or its full name as in ``"duckdb.DuckDBPyConnection"``, so that the library need not be
            imported. A later codec for the same name replaces an earlier one, and any comes before the built-in ones.

    Raises:
        NoCodec: ``kind`` is neither.

    Examples:
        >>> @codec("sqlite3.Connection")
        ... def reopened(connection):
        ...     return connect, (connection.execute("pragma database_list").fetchone()[2],)
    """
    name: object = full_name(kind) if isinstance(kind, type) else kind
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.replace(".<locals>", "").split(".")):
        raise NoCodec(kind)

    def register(function: Function) -> Function:
        _user[name] = function
        return function

    return register


def lookup(kind: type) -> Codec | None:
    """The codec for objects of ``kind``: that of the nearest base which has one, the user's before the built-in."""
    for base in kind.__mro__:
        name = full_name(base)
        if (function := _user.get(name)) is not None:
            return _adapted(function)
        if (place := _BUILT_IN.get(name)) is not None:
            module, _, attribute = place.partition(":")
            built_in: Codec = getattr(import_module(f"{__package__}.{module}"), attribute)
            return built_in
    return None


def _adapted(function: UserCodec) -> Codec:
    def codec_of_user(obj: Any, dump: Dump) -> Reduced:
        try:
            return function(obj)
        except Exception as err:
            raise NotSavable("refused by its codec", f"{type(err).__name__}: {err}") from err

    return codec_of_user


def full_name(kind: type) -> str:
    """``module.Type``, as ``codec`` takes it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def registered() -> dict[str, UserCodec]:
    """The user's codecs, to be saved with the session."""
    return dict(_user)


def register_again(name: str, function: UserCodec) -> None:
    """Take over a codec of a restored session, unless this process has one for the type."""
    _user.setdefault(name, function)


# ---------------------------------------------------------------------- while restoring
_remarks: ContextVar[dict[str, None] | None] = ContextVar("gpufair_restore_remarks", default=None)


@contextmanager
def remarks() -> Iterator[dict[str, None]]:
    """Collect what is said through ``remark`` meanwhile, in order."""
    said: dict[str, None] = {}
    token = _remarks.set(said)
    try:
        yield said
    finally:
        _remarks.reset(token)


def remark(text: str) -> None:
    """Tell the user something about the restore; the same text is told once."""
    if (said := _remarks.get()) is not None:
        said[text] = None
