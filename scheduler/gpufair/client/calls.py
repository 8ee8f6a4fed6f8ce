"""Every request that the service understands, built once; ``Client`` and ``AsyncClient`` only send them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from gpufair.client.answers import Reloaded
from gpufair.client.errors import BadAnswer
from gpufair.client.insight import BudgetsOverTime, Coaching, Deliveries, GpuHistory, Plan, Preview, Pyramid, Tour
from gpufair.client.machines import CpuPool, NodeView
from gpufair.client.reading import read, read_list
from gpufair.client.reasons import AllocationExplanation, Explanation
from gpufair.client.types import (
    Budgets,
    CheckedCheckpoint,
    CheckpointView,
    Connection,
    LogPage,
    PreflightView,
    Profile,
    Queue,
    Status,
    Workload,
)

API = "/api/v1"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One request and how to read its answer.

    ``repeatable``: sending it twice does no more than sending it once, so a lost answer may be asked for again.
    """

    method: str
    path: str
    parse: Callable[[Any], Result]
    params: Mapping[str, str] = field(default_factory=dict)
    json: object = None
    content: bytes | None = None
    content_type: str | None = None
    repeatable: bool = True

    @property
    def asked(self) -> str:
        """For error texts."""
        return f"{self.method} {self.path}"


def status() -> Call[Status]:
    """The service about itself."""
    return Call("GET", f"{API}/status", lambda data: read(Status, data))


def submit(
    launch: Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002  # the wire's own word
    profile: str | None = None,
    allocation: str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_type: str | None = None,
    min_runtime_s: float | None = None,
    kind: str | None = None,
    name: str | None = None,
    priority: int | None = None,
    resumable: bool | None = None,
    user: str | None = None,
    expected_s: float | None = None,
    **more: object,
) -> Call[Workload]:
    """Ask for a workload. ``None`` leaves a field to the profile or the service's default.

    With an ``id`` a repeated submission is the same submission, so only then a lost answer is retried.
    ``more``: further fields of the submission that the service knows: ``notebook``, ``kernel_name``, ``idle_release_s``,
    ``movable``, and what is asked for on each node beside GPUs: ``cpus``, ``memory_bytes``, ``within``, ``exclude``, ``where``.
    """
    given: dict[str, Any] = {
        "id": id,
        "profile": profile,
        "allocation": allocation,
        "gpus": gpus,
        "nodes": nodes,
        "gpu_type": gpu_type,
        "min_runtime_s": min_runtime_s,
        "kind": kind,
        "name": name,
        "priority": priority,
        "resumable": resumable,
        "user": user,
        "expected_s": expected_s,
        **more,
    }
    body = {key: value for key, value in given.items() if value is not None} | {"launch": dict(launch)}
    return Call("POST", f"{API}/workloads", _workload, json=body, repeatable=id is not None)


def workloads(
    state: str | None = None, user: str | None = None, notebook: str | None = None
) -> Call[tuple[Workload, ...]]:
    """Workloads, all or those in ``state``, of ``user``, and of one's own document ``notebook`` (an absolute path)."""
    given = (("state", state), ("user", user), ("notebook", notebook))
    params = {key: value for key, value in given if value is not None}
    return Call("GET", f"{API}/workloads", lambda data: read_list(Workload, data, "workloads"), params)


def workload(workload_id: str) -> Call[Workload]:
    """One workload."""
    return Call("GET", _of(workload_id), _workload)


def stop(workload_id: str) -> Call[Workload | None]:
    """End it, without a checkpoint. The answer may be empty."""
    return Call("DELETE", _of(workload_id), lambda data: None if data is None else _workload(data))


def act(workload_id: str, verb: str, body: Mapping[str, Any] | None = None) -> Call[Workload]:
    """``checkpoint``, ``park``, ``preflight``, ``restart``, ``restore`` or ``interrupt``: each does something anew when repeated."""
    return Call("POST", f"{_of(workload_id)}/{verb}", _workload, json=dict(body or {}), repeatable=False)


def resume(workload_id: str, *, from_checkpoint: bool = True, slice_s: float | None = None) -> Call[Workload]:
    """Queue a parked session again; ``from_checkpoint`` False starts it from nothing.

    ``slice_s``: its next start asks for so much protection only, which is had sooner; a queued one may ask for less too.
    """
    part = {} if slice_s is None else {"slice_s": slice_s}
    return act(workload_id, "resume", {"from_checkpoint": from_checkpoint} | part)


def amend(workload_id: str, **wish: object) -> Call[Workload]:
    """Have what waits or rests ask for something else; it keeps its place, and what is left out (or None) stays.

    ``wish``: ``gpus``, ``nodes``, ``gpu_type``, ``min_runtime_s``, ``allocation``, ``priority``, ``cpus``,
    ``memory_bytes``, ``within``, ``exclude``, ``where`` and ``pools``, as at a submission.
    """
    body = {name: value for name, value in wish.items() if value is not None}
    return Call("PATCH", _of(workload_id), _workload, json=body)


def restore(workload_id: str, checkpoint: str | None = None) -> Call[Workload]:
    """Load its last checkpoint, or the one named, into its running kernel."""
    return act(workload_id, "restore", {} if checkpoint is None else {"checkpoint": checkpoint})


def extend(workload_id: str, min_runtime_s: float) -> Call[Workload]:
    """Have it protected for ``min_runtime_s`` from now on; refused if somebody who waits comes first."""
    return act(workload_id, "extend", {"min_runtime_s": min_runtime_s})


def tour(user: str | None = None) -> Call[Tour]:
    """Some workloads of the last week, and why each waited, ran or was preempted; those of ``user`` (oneself) first."""
    return Call("GET", f"{API}/tour", lambda data: read(Tour, data), {} if user is None else {"user": user})


def why(workload_id: str) -> Call[Explanation]:
    """Why it is where it is."""
    return Call("GET", f"{_of(workload_id)}/why", lambda data: read(Explanation, data))


def connection(workload_id: str) -> Call[Connection]:
    """How to reach its kernel; only for its owner."""
    return Call("GET", f"{_of(workload_id)}/connection", lambda data: read(Connection, data))


def outputs(workload_id: str) -> Call[list[dict[str, Any]]]:
    """Its recorded executions with their outputs, oldest first."""
    return Call("GET", f"{_of(workload_id)}/outputs", lambda data: _objects(data, "executions"))


def preflight(workload_id: str) -> Call[PreflightView | None]:
    """What its kernel last said that a checkpoint would be like."""

    def parse(data: Any) -> PreflightView | None:
        told = data.get("preflight")
        return None if told is None else read(PreflightView, told)

    return Call("GET", f"{_of(workload_id)}/preflight", parse)


def log(workload_id: str, after: int = 0, *, rank: int = 0) -> Call[LogPage]:
    """A piece of what a command wrote on its node ``rank``, from byte ``after`` on; negative: so many before the end."""
    params = {"after": str(after), "rank": str(rank)}
    return Call("GET", f"{_of(workload_id)}/log", lambda data: read(LogPage, data), params)


def checkpoints(workload_id: str) -> Call[tuple[CheckpointView, ...]]:
    """Its checkpoints, newest first."""
    return Call("GET", f"{_of(workload_id)}/checkpoints", lambda data: read_list(CheckpointView, data, "checkpoints"))


def verify_checkpoints(workload_id: str) -> Call[tuple[CheckedCheckpoint, ...]]:
    """Have each of its checkpoints read from end to end, newest first."""
    return Call(
        "POST",
        f"{_of(workload_id)}/checkpoints/verify",
        lambda data: read_list(CheckedCheckpoint, data, "checkpoints"),
    )


def prune_checkpoints(workload_id: str, keep: int = 2, keep_s: float = 0.0) -> Call[tuple[str, ...]]:
    """Remove all but the newest; the names of what was removed."""
    body = {"keep": keep, "keep_s": keep_s}
    return Call(
        "POST", f"{_of(workload_id)}/checkpoints/prune", lambda data: tuple(map(str, data["removed"])), json=body
    )


def export_path(workload_id: str, checkpoint: str) -> str:
    """Where a checkpoint is had as a tar file: a stream, and so no ``Call``."""
    return f"{_of(workload_id)}/checkpoints/{quote(checkpoint, safe='')}/export"


def queue() -> Call[Queue]:
    """The queue, in the order of service."""
    return Call("GET", f"{API}/queue", lambda data: read(Queue, data))


def budgets() -> Call[Budgets]:
    """The budget tree with what is charged."""
    return Call("GET", f"{API}/budgets", lambda data: read(Budgets, data))


def budgets_why(allocation: str) -> Call[AllocationExplanation]:
    """How an allocation stands among its siblings, with the parts of each metric."""
    params = {"allocation": allocation}
    return Call("GET", f"{API}/budgets/why", lambda data: read(AllocationExplanation, data), params)


def apply_budgets(toml: bytes, why: str = "") -> Call[Budgets]:
    """Replace the whole budget tree by this file; ``why`` is for the history."""
    return Call(
        "PUT",
        f"{API}/budgets",
        lambda data: read(Budgets, data),
        {"why": why} if why else {},
        content=toml,
        content_type="application/toml",
    )


def nodes() -> Call[tuple[NodeView, ...]]:
    """The machines."""
    return Call("GET", f"{API}/nodes", lambda data: read_list(NodeView, data, "nodes"))


def cordon(node: str, *, on: bool = True) -> Call[NodeView]:
    """Let nothing new start on ``node``, or (``on`` False) let it."""
    verb = "cordon" if on else "uncordon"
    return Call("POST", f"{API}/nodes/{quote(node, safe='')}/{verb}", lambda data: read(NodeView, data))


def drain(node: str, *, within_s: float | None = None, force: bool = False) -> Call[NodeView]:
    """Let nothing new start on ``node`` and have it empty ``within_s`` from now; ``force`` cuts protections then."""
    body = {"force": force} | ({} if within_s is None else {"within_s": within_s})
    path = f"{API}/nodes/{quote(node, safe='')}/drain"
    # Repeated it would move the deadline, if only by the time that the first try took.
    return Call("POST", path, lambda data: read(NodeView, data), json=body, repeatable=False)


def remove_node(node: str) -> Call[NodeView]:
    """Take a lost ``node`` off the list for good; answers what it was."""
    path = f"{API}/nodes/{quote(node, safe='')}"
    return Call("DELETE", path, lambda data: read(NodeView, data), repeatable=False)


def maintenance() -> Call[tuple[Plan, ...]]:
    """What is planned, the first first."""
    return Call("GET", f"{API}/maintenance", _plans)


def plan_maintenance(nodes: Sequence[str], at_s: float, id: str | None = None) -> Call[tuple[Plan, ...]]:  # noqa: A002  # the wire's own word
    """Close ``nodes`` at ``at_s``: until then only what is done by then starts there. Answers all plans."""
    body = {"nodes": list(nodes), "at_s": at_s} | ({} if id is None else {"id": id})
    return Call("POST", f"{API}/maintenance", _plans, json=body, repeatable=False)


def cancel_maintenance(plan: str) -> Call[tuple[Plan, ...]]:
    """Take a plan back whose time has not come. Answers those that are left."""
    return Call("DELETE", f"{API}/maintenance/{quote(plan, safe='')}", _plans, repeatable=False)


def profiles() -> Call[tuple[Profile, ...]]:
    """The named shapes that users start."""
    return Call("GET", f"{API}/profiles", lambda data: read_list(Profile, data, "profiles"))


def preview(hours: float = 8.0) -> Call[Preview]:
    """Who runs next and who is preempted when, if nothing new arrives."""
    return Call("GET", f"{API}/preview", lambda data: read(Preview, data), {"hours": f"{hours:g}"})


def coach(**wish: object) -> Call[Coaching]:
    """What a submission would mean for the wait. Fields are those of ``submit``; ``min_runtimes_s``: which to compare."""
    body = {key: value for key, value in wish.items() if value is not None}
    return Call("POST", f"{API}/coach", lambda data: read(Coaching, data), json=body)


def pyramid(since_s: float | None = None, until_s: float | None = None) -> Call[Pyramid]:
    """Where GPU time went; by default over the budgets' window."""
    return Call("GET", f"{API}/pyramid", lambda data: read(Pyramid, data), _period(since_s, until_s))


def delivered(since_s: float | None = None, until_s: float | None = None) -> Call[Deliveries]:
    """What each allocation was owed and charged; by default over the budgets' window."""
    return Call("GET", f"{API}/budgets/delivered", lambda data: read(Deliveries, data), _period(since_s, until_s))


def budgets_over_time(
    allocation: str | None = None, since_s: float | None = None, until_s: float | None = None, bins: int = 168
) -> Call[BudgetsOverTime]:
    """What each allocation, or one, was owed and charged over time, in at most so many bins of whole hours."""
    only = {} if allocation is None else {"allocation": allocation}
    params = only | {"bins": str(bins)} | _period(since_s, until_s)
    return Call("GET", f"{API}/budgets/over-time", lambda data: read(BudgetsOverTime, data), params)


def history(hours: float = 6.0, node: str | None = None) -> Call[GpuHistory]:
    """Who held which GPU in the last hours (a week at most), on all nodes or on one."""
    only = {} if node is None else {"node": node}
    return Call("GET", f"{API}/history", lambda data: read(GpuHistory, data), {"hours": f"{hours:g}"} | only)


def conservation() -> Call[dict[str, Any]]:
    """The ledger's balance: what became of every GPU-millisecond."""
    return Call("GET", f"{API}/conservation", _object)


def timeline(after: int = 0) -> Call[list[dict[str, Any]]]:
    """Events and decisions with their times, oldest first; those whose ``seq`` is above ``after``."""
    params = {"after": str(after)} if after else {}
    return Call("GET", f"{API}/timeline", lambda data: _objects(data, "records"), params)


def timeline_page(
    after: int = 0, *, since_s: float = 0.0, kinds: Iterable[str] = (), limit: int = 10_000
) -> Call[dict[str, Any]]:
    """A piece of the timeline: ``{"records", "last", "more"}``. The next one follows ``last``, if there are ``more``."""
    params = {"after": str(after), "since_s": f"{since_s:.3f}", "kinds": ",".join(sorted(kinds)), "limit": str(limit)}
    return Call("GET", f"{API}/timeline", _object, params)


def reload() -> Call[Reloaded]:
    """Have the service read its configuration again; operators."""
    return Call("POST", f"{API}/reload", lambda data: read(Reloaded, data))


def snapshot() -> Call[dict[str, Any]]:
    """The whole state, to try budgets and options on: ``{"seq", "at_s", "version", "state"}``; budget owners, operators."""
    return Call("GET", f"{API}/snapshot", _object)


def cpu_pool() -> Call[CpuPool]:
    """The CPU pool that the service keeps; nothing is started."""
    return Call("GET", f"{API}/cpu-pool", lambda data: read(CpuPool, data))


def join_cpu_pool(workload: str | None = None) -> Call[CpuPool]:
    """The same with its key, started if need be: ask again while it is ``starting``. ``workload``: whose tasks ours are."""
    body = {} if workload is None else {"workload": workload}
    return Call("POST", f"{API}/cpu-pool/join", lambda data: read(CpuPool, data), json=body)


def _period(since_s: float | None, until_s: float | None) -> dict[str, str]:
    return {key: f"{at:.3f}" for key, at in (("since_s", since_s), ("until_s", until_s)) if at is not None}


def _of(workload_id: str) -> str:
    return f"{API}/workloads/{quote(workload_id, safe='')}"


def _workload(data: object) -> Workload:
    return read(Workload, data)


def _plans(data: object) -> tuple[Plan, ...]:
    return read_list(Plan, data, "plans")


def _object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadAnswer(f"expected an object, got {type(data).__name__}")
    return data


def _objects(data: object, key: str) -> list[dict[str, Any]]:
    items = _object(data).get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswer(f"expected an object with a list {key!r} of objects")
    return items
