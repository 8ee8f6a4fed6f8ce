"""Policies in processes of their own: each decides alone, so several may at once.

A process is given the scenario once. What it sends back names jobs by their ids, and the scenario not at all: they are
what the one who asked has already.
"""

from __future__ import annotations

import io
import multiprocessing
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.model import Policy
from gpufair.core.units import Instant, Millis
from gpufair.sim.engine import play
from gpufair.sim.job import Job
from gpufair.sim.policies.registry import contender
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story

_SCENARIO: Final = "scenario"  # as what it is sent back
_LONGEST: Final = 200  # characters of what a report is about; the whole has to stay below PIPE_BUF


Spread = Callable[..., Iterator[Any]]
"""A function for each task in turn, as ``map`` does it."""


class WorkerLost(GpufairError):
    """A process that played something is gone."""

    def __str__(self) -> str:
        return "a process that played a run was killed, perhaps for want of memory; let fewer run at once (--jobs)"


def _mapping(values: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(values)


class _Packer(pickle.Pickler):
    """Knows read-only mappings, which the pickle of the standard library does not."""

    def reducer_override(self, obj: Any) -> Any:
        return (_mapping, (dict(obj),)) if type(obj) is MappingProxyType else NotImplemented


class _StoryPacker(_Packer):
    """Leaves out what the receiver has."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, Job):
            return ("job", obj.id)
        return (_SCENARIO, "") if isinstance(obj, Scenario) else None


class _StoryUnpacker(pickle.Unpickler):
    def __init__(self, data: bytes, scenario: Scenario, jobs: Mapping[str, Job]) -> None:
        super().__init__(io.BytesIO(data))
        self._scenario, self._jobs = scenario, jobs

    def persistent_load(self, pid: tuple[str, str]) -> Scenario | Job:
        return self._scenario if pid[0] == _SCENARIO else self._jobs[pid[1]]


def pack(value: object) -> bytes:
    """Any scenario, policy or function of a module, to be sent to another process of ours."""
    out = io.BytesIO()
    _Packer(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


_given: dict[str, Any] = {}  # in a worker: what it was started with


def start_worker(file: str, reports: Connection) -> None:
    """The first thing that a worker does."""
    # Ctrl-C reaches all processes of a terminal; who started this one tells its user.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _given["value"], _given["reports"] = pickle.loads(Path(file).read_bytes()), reports  # noqa: S301  # from who started it


def given() -> Any:
    """In a worker: what all of them were started with."""
    return _given["value"]


def report(what: str, part: float) -> None:
    """In a worker: how much of something is done.

    A short message into a pipe is written whole or not at all. So it needs no lock, which a process that is ended here
    would take with it.
    """
    _given["reports"].send((what[:_LONGEST], part))


@contextmanager
def workers(value: object, count: int, progress: Callable[[str, float], None] | None) -> Iterator[Spread]:
    """Processes that have ``value``. They are started afresh: a fork of a process with threads may hang.

    Raises:
        WorkerLost: One was killed.
    """
    context = multiprocessing.get_context("spawn")
    heard, reports = context.Pipe(duplex=False)

    def listen() -> None:
        while (said := heard.recv()) is not None:
            if progress is not None:
                progress(*said)

    listener = threading.Thread(target=listen, name="progress", daemon=True)
    listener.start()
    others = set(multiprocessing.active_children())
    with tempfile.TemporaryDirectory(prefix="gpufair-sim-") as folder:
        file = Path(folder) / "value"
        file.write_bytes(pack(value))
        pool = ProcessPoolExecutor(count, context, start_worker, (str(file), reports))
        try:
            yield partial(_spread, pool)
            pool.shutdown()
        except BrokenProcessPool as err:
            raise WorkerLost from err
        except BaseException:
            # Nobody waits for their results any more; but for the pool, which would complain at the exit of this process.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            reports.send(None)
            listener.join()
            heard.close()
            reports.close()


def _spread(pool: ProcessPoolExecutor, function: Callable[..., Any], *tasks: Iterable[Any]) -> Iterator[Any]:
    """Results in the order of the tasks."""
    with _uninterrupted():
        return pool.map(function, *tasks)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """An interrupt comes before or after processes are started, not meanwhile: half of one would complain.

    They inherit the mask, and so hear of no interrupt before ``start_worker`` lets them. Here other threads would, and
    Python tells the main one: so it is noted, and told at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if noted:
            signal.raise_signal(signal.SIGINT)


def run_in_workers(
    scenario: Scenario,
    options: Mapping[str, Policy],
    sample_every: Millis | None,
    jobs: int,
    progress: Callable[[str, float], None] | None,
) -> list[Story]:
    """The stories of a scenario under the policies named, each with its options, in their order."""
    known = {str(job.id): job for job in scenario.jobs}
    with workers(scenario, jobs, progress) as spread:
        packed = spread(partial(_play, sample_every), options, [pack(one) for one in options.values()])
        return [_StoryUnpacker(data, scenario, known).load() for data in packed]


def _play(sample_every: Millis | None, name: str, options: bytes) -> bytes:
    scenario: Scenario = given()
    span = max(1, scenario.until - scenario.start)

    def told(at: Instant) -> None:
        report(name, (at - scenario.start) / span)

    policy: Policy = pickle.loads(options)  # noqa: S301  # as above
    story = play(scenario, contender(name), policy, sample_every=sample_every, progress=told)
    out = io.BytesIO()
    _StoryPacker(out, pickle.HIGHEST_PROTOCOL).dump(story)
    return out.getvalue()
