"""What runs in a worker of the pool: it opens a parcel, calls what is in it and packs what came of it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import io
import pickle
import platform
import sys
import threading
import traceback
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from distributed import WorkerPlugin, get_worker
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gpufair.cpu.errors import RemoteFailure, Unpicklable, WrongEnvironment
from gpufair.cpu.parcel import Parcel, pack

MAX_OUTPUT_CHARS = 1_000_000  # of one task and stream; the rest is dropped and said so
RESULT, ERROR = "the result", "the error"  # parts of an outcome, as errors call them
COMPARED = ("cloudpickle", "dask", "distributed", "jupyter-gpufair", "numpy", "pandas", "msgpack")

_received: ContextVar[tuple[Any, ...]] = ContextVar("received")
_outputs: ContextVar[dict[str, io.StringIO] | None] = ContextVar("outputs", default=None)
_running: dict[str, int] = {}  # ticket -> thread
_lock = threading.Lock()
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Outcome:
    """What came of one task: ``value``, or else ``error`` (None where it does not pickle) and ``trace``."""

    value: Parcel | None
    error: Parcel | None = None
    trace: str = ""
    stdout: str = ""
    stderr: str = ""
    worker: str = ""

    def __sizeof__(self) -> int:
        packed = sys.getsizeof(self.value) + sys.getsizeof(self.error)  # by which a Dask worker knows when to spill
        return object.__sizeof__(self) + packed + len(self.trace) + len(self.stdout) + len(self.stderr)


# By itself Dask pickles an outcome with protocol 4, which copies its buffers.
@dask_serialize.register(Outcome)  # type: ignore[no-untyped-call,untyped-decorator]
def _to_frames(outcome: Outcome) -> tuple[dict[str, Any], list[Any]]:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(outcome, protocol=5, buffer_callback=buffers.append)
    return {}, [head, *(buffer.raw() for buffer in buffers)]


@dask_deserialize.register(Outcome)  # type: ignore[no-untyped-call,untyped-decorator]
def _from_frames(header: dict[str, Any], frames: list[Any]) -> Outcome:
    outcome: Outcome = pickle.loads(frames[0], buffers=frames[1:])  # noqa: S301 - Dask's connection, as trusted as Dask's own
    return outcome


class _Routed:
    """A stream that gives each task its own output, although all threads of a process share one ``sys.stdout``."""

    def __init__(self, name: str, plain: TextIO) -> None:
        self._name, self._plain = name, plain

    def write(self, text: str) -> int:
        kept = _outputs.get()
        if kept is None:
            return self._plain.write(text)
        room = MAX_OUTPUT_CHARS - kept[self._name].tell()
        if room > 0:
            kept[self._name].write(text if len(text) <= room else text[:room] + "\n[more output was dropped]\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


def python_minor() -> str:
    """Of this process; code travels only between equal ones, because bytecode differs."""
    return f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"


def versions() -> dict[str, str]:
    """What must fit between a notebook and a worker; what is not installed is left out."""
    found = {"Python": python_minor()}
    for name in COMPARED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def received(place: int) -> Any:
    """The result of another task, where a parcel refers to it."""
    return opened(_received.get()[place])


def opened(outcome: Outcome, namespace: dict[str, Any] | None = None) -> Any:
    """The value of ``outcome``, or its exception raised."""
    if outcome.value is not None:
        return outcome.value.open(namespace)[RESULT]
    raise failure(outcome)


def failure(outcome: Outcome) -> BaseException:
    """The exception of ``outcome``, with what its worker had to say as a note."""
    try:
        error = outcome.error.open()[ERROR] if outcome.error is not None else None
    except Exception:  # noqa: BLE001 - an exception of a library that is missing here
        error = None
    if not isinstance(error, BaseException):
        error = RemoteFailure(outcome.trace.strip().rpartition("\n")[2])
    parts = [f"On the worker {outcome.worker}:\n{outcome.trace.rstrip()}"] if outcome.trace else []
    parts += [f"Its {name}:\n{text[-20_000:].rstrip()}" for name, text in (("stdout", outcome.stdout), ("stderr", outcome.stderr)) if text]
    for part in parts:
        error.add_note(part)
    return error


def run(parcel: Parcel, ticket: str, python: str, *dependencies: Outcome) -> Outcome:
    """Called by Dask. What the task raises is an outcome as well: Dask would try to make sense of it."""
    if python != python_minor():
        error: Exception = WrongEnvironment((f"Python: {python} here, {python_minor()} on a worker",))
        return Outcome(None, pack({ERROR: error}), str(error))
    for name in ("stdout", "stderr"):
        if not isinstance(getattr(sys, name), _Routed):
            setattr(sys, name, _Routed(name, getattr(sys, name)))
    kept = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    outputs, others = _outputs.set(kept), _received.set(dependencies)
    value = failed = None
    trace = ""
    with _lock:
        _running[ticket] = threading.get_ident()
    try:
        task = parcel.open()
        value = pack({RESULT: task["function"](*task["arguments"], **task["keywords"])})
    except BaseException as err:  # noqa: BLE001 - SystemExit and the like are the user's, and end no worker
        trace = _trace(err)
        try:
            failed = pack({ERROR: _bare(err)})
        except Unpicklable:
            failed = None
    finally:
        with _lock:
            _running.pop(ticket, None)
        _outputs.reset(outputs)
        _received.reset(others)
    return Outcome(value, failed, trace, kept["stdout"].getvalue(), kept["stderr"].getvalue(), _name())


def stop(tickets: list[str]) -> None:
    """Raise ``Cancelled`` in the threads that run these tasks here. Code in C hears of it when it returns to Python."""
    with _lock:
        for ticket in tickets:
            if thread := _running.get(ticket):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Stopped))


class StopUnwanted(WorkerPlugin):
    """Stops tasks that run and that nobody wants any more: cancelled ones, and those of a kernel that is gone.

    Dask forgets them, but lets them run to their end, before which it may give their worker the next task.
    """

    name = "gpufair-stop-unwanted"
    idempotent = True

    def transition(self, key: Any, start: str, finish: str, *args: Any, **keywords: Any) -> None:
        """Called by the worker for each change of a task's state."""
        if start in {"executing", "long-running"} and finish in {"released", "forgotten"}:
            stop([key])


class _Stopped(BaseException):
    """``except Exception`` in the user's code must not catch it."""


def _name() -> str:
    try:
        return str(get_worker().address)
    except ValueError:  # outside a worker
        return platform.node()


def _bare(error: BaseException) -> BaseException:
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _trace(error: BaseException) -> str:
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
