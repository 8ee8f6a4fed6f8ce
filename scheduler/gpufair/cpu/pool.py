"""A connection to the CPU pool, and what it is asked for. Which one there is, and how it is reached, is in ``connection``."""

from __future__ import annotations

import html
import platform
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import dask.config
import distributed

from gpufair.cpu import kept, worker
from gpufair.cpu.environment import compare
from gpufair.cpu.errors import Cancelled, PoolLost, WorkerDied, WorkersGone, WrongEnvironment
from gpufair.cpu.parcel import Parcel, pack
from gpufair.cpu.task import Kind, Task, Where, attach, cancelled
from gpufair.cpu.waiting import Watch

WARN_BYTES = 64_000_000
WORKERS_WAIT_S = 600.0  # a cluster that starts machines when they are asked for needs minutes
_POLL_S = 0.5


class Pool:
    """See ``connection.connect``."""

    def __init__(
        self,
        client: Any,
        cluster: Any,
        kind: Kind,
        warn_bytes: int = WARN_BYTES,
        by_reference: Sequence[str] = (),
        workers_wait_s: float = WORKERS_WAIT_S,
    ) -> None:
        self.client, self._cluster = client, cluster
        self.warn_bytes, self.by_reference = warn_bytes, tuple(by_reference)
        self.address: str = client.scheduler.address
        self.dashboard: str | None = None  # for a browser
        self.secured = False  # with certificates that its user gave
        self.where = Where(kind, self.address, str(client.scheduler_info()["id"]), platform.node())
        self.kept = set[str]()  # tickets that the scheduler keeps for who restores this session
        self.attempts = 1 + int(dask.config.get("distributed.scheduler.allowed-failures"))
        try:
            there = client.run(worker.versions, on_error="raise")
        except ModuleNotFoundError as err:
            raise WrongEnvironment((f"the workers have no {err.name}; install jupyter-gpufair there",)) from None
        self.workers_wait_s, self.had_workers = workers_wait_s, bool(there)
        for found in there.values():
            compare_with(found)
        client.register_plugin(worker.StopUnwanted())

    def __repr__(self) -> str:
        return f"<CPU pool at {self.address}{f', to be watched at {self.dashboard}' if self.dashboard else ''}>"

    def _repr_html_(self) -> str:
        link = self.dashboard and html.escape(self.dashboard)
        return f"CPU pool at {html.escape(self.address)}" + (f', <a href="{link}" target="_blank">dashboard</a>' if link else "")

    @property
    def lasting(self) -> bool:
        """Whether it outlives this process, and a session that was restored finds it by itself."""
        return self.where.kind != "own" and not self.secured

    def submit(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Task:
        """Call ``function`` in the pool, with the notebook's code and values as they are now.

        Raises:
            TypeError: ``function`` cannot be called.
            Unpicklable: An argument, or what the function refers to, cannot travel.
        """
        if not callable(function):
            raise TypeError(f"submit takes a function and its arguments, as in submit(f, x); {type(function).__name__} cannot be called")
        name = getattr(function, "__name__", type(function).__name__)
        parts = {f"argument {place} of {name}": value for place, value in enumerate(arguments, 1)}
        parts |= {f"argument {key!r} of {name}": value for key, value in keywords.items()}
        needed: list[Task] = []
        # The dict is what the worker opens; `parts` only names what cannot travel.
        parcel = self._packed({"function": function, "arguments": arguments, "keywords": keywords}, {name: function, **parts}, needed)
        return self.send(parcel, name, needed)

    def _packed(self, task: dict[str, Any], parts: dict[str, Any], needed: list[Task]) -> Parcel:
        try:
            return self.pack(task, needed=needed)
        except Exception:
            self.pack(parts, needed=[])  # raises with the name of the very argument
            raise

    def pack(self, parts: dict[str, Any], namespace: dict[str, Any] | None = None, *, needed: list[Task]) -> Parcel:
        """``parcel.pack``, in which tasks of this pool stand for their results; those met are added to ``needed``."""

        def replace(obj: Any) -> Any:
            if type(obj) is not Task:
                return None
            if obj.pool is not self:
                raise ValueError("it is in another CPU pool; give its result instead")
            if obj not in needed:
                needed.append(obj)
            return worker.received, (needed.index(obj),)

        return pack(parts, namespace, replace=replace, by_reference=self.by_reference)

    def send(self, parcel: Parcel, name: str, needed: Sequence[Task] = ()) -> Task:
        """Hand a packed call to Dask, with a warning if it is large."""
        if (large := self.too_large(name, parcel)) is not None:
            warnings.warn(large, stacklevel=4)
        return self.hand(parcel, name, needed)

    def too_large(self, name: str, parcel: Parcel) -> str | None:
        """What is to be said of a call of that size; None: nothing."""
        if parcel.size_bytes <= self.warn_bytes:
            return None
        return (
            f"{name} sends {parcel.size_bytes / 1e6:,.0f} MB to the CPU pool; send less, or let it read a file there "
            f"(warn_bytes of gpufair.cpu.connect is {self.warn_bytes / 1e6:,.0f} MB)"
        )

    def hand(self, parcel: Parcel, name: str, needed: Sequence[Task] = ()) -> Task:
        """Hand a packed call to Dask."""
        # %reset takes this away, without which multiprocessing starts no worker in the place of one that died.
        vars(sys.modules["__main__"]).setdefault("__spec__", None)
        ticket = f"gpufair-{name.strip('<>')}-{uuid.uuid4().hex}"
        with warnings.catch_warnings():
            # Dask's own advice is to scatter: the data would then be gone with the one worker that holds them.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            futures = [task.future for task in needed]
            future = self.client.submit(worker.run, parcel, ticket, worker.python_minor(), *futures, key=ticket, pure=False)
        return Task(self.where, ticket, name, self, future)

    def futures(self, tickets: Sequence[str]) -> dict[str, Any]:
        """Dask's futures of those tasks that are still here, for a kernel that was restored.

        Raises:
            PoolLost: The scheduler does not answer.
        """
        # Before they are asked for: what the scheduler says of a future that its client does not have is not heard.
        found: dict[str, Any] = {ticket: distributed.Future(ticket, self.client) for ticket in tickets}
        try:
            unknown = kept.keep(self.client, tickets, reader=self.client.id)
        except (OSError, TimeoutError) as err:
            raise self._lost() from err
        for ticket in unknown:
            del found[ticket]
        self.kept |= found.keys()
        return found

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Task]:
        """One task for each set of arguments, as the ``map`` of Python."""
        return [self.submit(function, *arguments) for arguments in zip(*iterables, strict=False)]

    def gather(self, tasks: Task | Iterable[Task], progress: Callable[[int], None] | None = None) -> Any:
        """The result of a task, or the list of the results of several. An interrupt cancels all of them.

        Args:
            tasks: Of this pool.
            progress: Called with how many have ended, at most twice a second; by default a bar, where IPython shows one.

        Raises:
            TypeError: Something else than tasks.
            Cancelled, PoolLost, WorkersGone, WorkerDied: No result. Else whatever the task itself raised.
        """
        if isinstance(tasks, Task):
            return worker.opened(self.outcome(tasks))
        several = tasks_in(tasks)
        return [worker.opened(outcome) for outcome in self.outcomes(several, progress)]

    def outcome(self, task: Task) -> worker.Outcome:
        """How one task ended."""
        return self.outcomes([task])[0]

    def outcomes(self, tasks: list[Task], progress: Callable[[int], None] | None = None) -> list[worker.Outcome]:
        """How each ended, in order."""
        from gpufair.cpu.progress import bar  # noqa: PLC0415 - IPython need not be there

        try:
            attach(tasks)
            begun, show, watch = time.monotonic(), progress, Watch(self)
            for task in tasks:
                while not self._ended(task):
                    watch.look([each.ticket for each in tasks if not each.done()])
                    if show is None and len(tasks) > 1 and time.monotonic() - begun > 1:
                        show = bar(len(tasks))
                    if show is not None:
                        show(sum(each.done() for each in tasks))
            if show is not None:
                show(len(tasks))
            return [self._taken(task) for task in tasks]
        except (KeyboardInterrupt, WorkersGone):
            self.cancel(tasks)  # else it would run when workers come, for nobody
            raise

    def _lost(self) -> PoolLost:
        return PoolLost(self.address, renewed=self.where.kind == "service")

    def _ended(self, task: Task) -> bool:
        try:
            task.future.exception(timeout=_POLL_S)  # it is returned, not raised, and nothing is fetched
        except TimeoutError:
            if self.client.status != "running":
                raise self._lost() from None
            return False
        except CancelledError:
            return True  # which _taken explains
        return True

    def _taken(self, task: Task) -> worker.Outcome:
        try:
            outcome: worker.Outcome = task.future.result()
        except CancelledError as err:
            if getattr(err, "reason", None) == "gpufair" or task.ticket in cancelled:
                raise Cancelled(task.name) from None
            raise self._lost() from None
        except distributed.KilledWorker:
            raise WorkerDied(task.name, self.attempts) from None
        except OSError as err:
            raise self._lost() from err
        self.had_workers = True
        return outcome

    def cancel(self, tasks: Sequence[Task]) -> None:
        """Stop tasks, where they run as well."""
        cancelled.update(task.ticket for task in tasks)
        try:
            # By force, for the scheduler may keep them for a restore.
            self.client.cancel([task.future for task in tasks], reason="gpufair", force=True)
        except (OSError, TimeoutError, CancelledError):
            return  # a pool that is gone runs nothing

    def close(self) -> None:
        """Leave the pool, and what is in it; one that ``connect`` started on this machine ends."""
        kept.let_go(self.client, self.kept)
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()


def compare_with(there: dict[str, str]) -> None:
    """Warn of differences, or raise ``WrongEnvironment``."""
    refused, told = compare(worker.versions(), there)
    if refused:
        raise WrongEnvironment(tuple(refused))
    for difference in told:
        warnings.warn(f"CPU pool: {difference}; objects of it may not be read alike", stacklevel=4)


def tasks_in(several: Iterable[object]) -> list[Task]:
    """As a list. Raises: TypeError: Something in it is no task."""
    found = list[Task]()
    for one in several:
        if not isinstance(one, Task):
            raise TypeError(f"gather takes what submit and map return, not {type(one).__name__}")
        found.append(one)
    return found
