"""Why an object cannot be saved, where in the variable it sits, and what its owner can do about it."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_REASON = 500
_MAX_VISITED = 5_000  # a search for an explanation must not cost more than the checkpoint
_MAX_DEPTH = 8
_LEAVES = (str, bytes, int, float, type)


class Cause(NamedTuple):
    """What the offending object is, and the remedy."""

    what: str
    remedy: str


_REOPEN = "open it again after the restore"
_LOCK = Cause(
    "a lock", "a lock belongs to its process; create it after the restore, or leave it out in the object's __getstate__"
)
_GENERATOR = Cause("a generator", "its position cannot be saved; keep a list, or recreate it after the restore")
_COROUTINE = Cause("a coroutine", "await it before the checkpoint, or call its function again after the restore")
_THREAD = Cause("a thread", "threads do not move between processes; start it again after the restore")
FILE = Cause("an open file", f"close it when done, or {_REOPEN}")
_SOCKET = Cause("a network socket", "connections do not survive a move; connect again after the restore")
_DATABASE = Cause("a database connection", "connect again after the restore")
_PROCESS = Cause("a running process", "it stays on its machine; start it again after the restore")
_POOL = Cause("a pool of workers", "create it again after the restore")
_TASK = Cause("an asyncio task or future", "await it before the checkpoint, and keep its result")
_WIDGET = Cause("a widget", "its front end belongs to this kernel process; run its cell again after the restore")
_MEMORYVIEW = Cause("a memoryview", "it looks into another object's memory; keep the object, or bytes(view)")
_FRAME = Cause("a traceback or stack frame", "keep the exception's text instead: traceback.format_exc()")
_CONTEXT = Cause("a context variable", "create it in a module that is imported")
_MAPPED = Cause("memory mapped from a file", f"{_REOPEN} (mmap), or copy it into an array")
_DEVICE = Cause("a stream, event or graph of a GPU", "it belongs to the process; create it again after the restore")
_GROUP = Cause("a group of processes", "call init_process_group again after the restore")
_POINTER = Cause("a pointer of ctypes", "an address means nothing in another process; build it again after the restore")

_CAUSES: dict[str, Cause] = {
    "builtins.generator": _GENERATOR,
    "builtins.async_generator": _GENERATOR,
    "builtins.coroutine": _COROUTINE,
    "builtins.frame": _FRAME,
    "builtins.traceback": _FRAME,
    "builtins.memoryview": _MEMORYVIEW,
    "_thread.lock": _LOCK,
    "_thread.RLock": _LOCK,
    "_thread._local": Cause("thread-local data", "create it again after the restore"),
    "threading.Thread": _THREAD,
    "_thread._ThreadHandle": _THREAD,
    "tempfile._TemporaryFileWrapper": Cause("a temporary file", "it goes with its process; write to a file that stays"),
    "_io.TextIOWrapper": FILE,
    "_io._IOBase": FILE,
    "_socket.socket": _SOCKET,
    "_ssl._SSLSocket": _SOCKET,
    "ssl.SSLContext": _SOCKET,
    "sqlite3.Connection": _DATABASE,
    "sqlite3.Cursor": _DATABASE,
    "subprocess.Popen": _PROCESS,
    "multiprocessing.process.BaseProcess": _PROCESS,
    "multiprocessing.pool.Pool": _POOL,
    "concurrent.futures._base.Executor": _POOL,
    "concurrent.futures._base.Future": _TASK,
    "_asyncio.Task": _TASK,
    "_asyncio.Future": _TASK,
    "_queue.SimpleQueue": Cause("a queue between threads", "keep its items in a list, and fill a new queue"),
    "_contextvars.ContextVar": _CONTEXT,
    "_contextvars.Context": _CONTEXT,
    "mmap.mmap": _MAPPED,
    "numpy.memmap": _MAPPED,
    "_ctypes._Pointer": _POINTER,
    "_ctypes.CFuncPtr": _POINTER,
    "select.epoll": _SOCKET,
    "duckdb.DuckDBPyConnection": _DATABASE,
    "_duckdb.DuckDBPyConnection": _DATABASE,
    "psycopg.BaseConnection": _DATABASE,
    "psycopg2.extensions.connection": _DATABASE,
    "pymysql.connections.Connection": _DATABASE,
    "sqlalchemy.engine.base.Connection": _DATABASE,
    "sqlalchemy.engine.base.Engine": _DATABASE,
    "sqlalchemy.orm.session.Session": _DATABASE,
    "pymongo.synchronous.mongo_client.MongoClient": _DATABASE,
    "redis.client.Redis": _DATABASE,
    "h5py._hl.base.HLObject": FILE,
    "zipfile.ZipFile": FILE,
    "tarfile.TarFile": FILE,
    "torch.utils.tensorboard.writer.SummaryWriter": FILE,
    "zmq.sugar.socket.Socket": _SOCKET,
    "zmq.sugar.context.Context": _SOCKET,
    "torch.cuda.streams.Stream": _DEVICE,
    "torch.cuda.streams.Event": _DEVICE,
    "torch.cuda.graphs.CUDAGraph": _DEVICE,
    "torch._C._distributed_c10d.ProcessGroup": _GROUP,
    "torch.utils.data.dataloader._BaseDataLoaderIter": Cause(
        "an iterator of a DataLoader", "keep the loader, and loop with gpufair.resumable(loader), which knows its place"
    ),
    "ipywidgets.widgets.widget.Widget": _WIDGET,
    "distributed.client.Client": Cause(
        "a Dask client", "connect again after the restore; its cluster keeps the results it still holds"
    ),
}

# Types whose pickling succeeds and gives something else than what was there: cloudpickle turns an open text file into
# its text and a memoryview into bytes, an empty widget or a client without its connection comes back.
# A named loss is better than a quiet one.
_REFUSED = frozenset(
    {
        "builtins.memoryview",
        "tempfile._TemporaryFileWrapper",
        "ipywidgets.widgets.widget.Widget",
        "distributed.client.Client",
        "multiprocessing.process.BaseProcess",
    }
)


def causes() -> list[Cause]:
    """All that is known, each once, in order: for the documentation."""
    return list(dict.fromkeys(_CAUSES.values()))


class NotSavable(Exception):
    """Raised inside the pickler for an object that is refused. Caught in this package."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.cause = Cause(what, remedy)


def refusal(kind: type) -> Callable[[object, object], None] | None:
    """A codec that refuses objects of ``kind``, where they could be pickled and should not be."""
    cause = next((_CAUSES[name] for name in _names(kind) if name in _REFUSED), None)
    if cause is None:
        return None

    def refuse(obj: object, dump: object) -> None:
        raise NotSavable(*cause)

    return refuse


def explain(name: str, value: object, offender: object, error: BaseException) -> str:
    """One sentence for the user: what cannot be saved, where it sits inside ``value``, and the remedy.

    Args:
        name: The variable.
        value: Its value.
        offender: The last object that the pickler looked at; mostly the one that failed.
        error: What the pickler raised.
    """
    told = _text(error)
    if isinstance(error, RecursionError) or "excessively deep recursion" in told:
        return (
            f"{type(value).__name__} is nested too deeply to be saved (a long linked list, say); "
            "keep it as a flat list or a dict"
        )
    if isinstance(error, MemoryError):
        return "there was not enough memory to save it; delete what you no longer need, or save this one to a file"
    # A library that refuses by itself (a Thread because of its lock) is better named than the lock inside it.
    told_cause = error.cause if isinstance(error, NotSavable) else None
    cause = (told_cause if offender is value else None) or _cause(value) or told_cause or _cause(offender)
    if cause is None:
        why = f"{type(error).__name__}: {told}" if told else type(error).__name__
        return _clipped(
            f"{_kind(offender)} cannot be pickled ({why}); give its class a working __reduce__, or recreate it after the restore"
        )
    place = name + _path_to(value, offender)
    where = "" if place == name else f" ({place})"
    return _clipped(f"{'holds' if where else 'is'} {cause.what}{where}: {cause.remedy}")


def explain_load(error: BaseException) -> str:
    """The same for an object that was saved and could not be rebuilt here."""
    if isinstance(error, ModuleNotFoundError):
        return f"needs the module {error.name!r}, which is not installed on this node"
    if isinstance(error, MemoryError):
        return "there was not enough memory on this node to restore it"
    told = _text(error)
    return _clipped(f"could not be rebuilt ({type(error).__name__}{': ' + told if told else ''})")


def _text(error: BaseException) -> str:
    """First line of what it says. Its ``__str__`` may be the user's and fail as well."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001
        return ""
    return lines[0] if lines else ""


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


def _kind(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _names(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        yield f"{base.__module__}.{base.__qualname__}"


def _cause(value: object) -> Cause | None:
    return next((_CAUSES[name] for name in _names(type(value)) if name in _CAUSES), None)


def _path_to(root: object, target: object) -> str:
    """How to get from ``root`` to ``target``, as Python would write it; empty if it is the same or not found."""
    if root is target:
        return ""
    seen, queue = {id(root)}, deque([(root, "", 0)])
    while queue and len(seen) < _MAX_VISITED:
        here, path, depth = queue.popleft()
        for step, child in _children(here):
            if child is target:
                return path + step
            if id(child) not in seen and depth < _MAX_DEPTH and not issubclass(type(child), _LEAVES):
                seen.add(id(child))
                queue.append((child, path + step, depth + 1))
    return ""


def _children(value: object) -> Iterator[tuple[str, object]]:
    # Exact types only: a subclass may compute, connect or fail when it is iterated.
    kind = type(value)
    if kind is dict:
        yield from ((f"[{_short(k)}]", v) for k, v in list(value.items())[:_MAX_VISITED])  # type: ignore[attr-defined]
    elif kind in (list, tuple):
        yield from ((f"[{i}]", v) for i, v in enumerate(value[:_MAX_VISITED]))  # type: ignore[index]
    elif kind in (set, frozenset):
        yield from (("{…}", v) for v in list(value)[:_MAX_VISITED])  # type: ignore[call-overload]
    elif kind is types.FunctionType:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):  # type: ignore[attr-defined]
            try:
                yield f" → {name}", cell.cell_contents
            except ValueError:
                continue  # an empty cell
    elif kind is types.MethodType:
        yield ".__self__", value.__self__  # type: ignore[attr-defined]
    else:
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(attributes) is dict:
            yield from ((f".{k}", v) for k, v in list(attributes.items())[:_MAX_VISITED])


def _short(key: object) -> str:
    return repr(key)[:40] if type(key) in (str, int, float, bool, type(None)) else "…"
