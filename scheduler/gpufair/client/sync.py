"""The service, called synchronously. What each method means is said at its builder in ``gpufair.client.calls``."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Self, TypeVar

import httpx

from gpufair.client import announcing, budgeting, calls, pools
from gpufair.client.announcing import Announcement, Announcements
from gpufair.client.answers import Reloaded
from gpufair.client.budgeting import BudgetHistory, BudgetRequest, BudgetRequests
from gpufair.client.calls import API, Call
from gpufair.client.endpoint import Endpoint
from gpufair.client.errors import ClientError, Unavailable
from gpufair.client.exchange import Patience, Tries, arguments, headers, result, source
from gpufair.client.follow import Event, Follower, refusal, stream_timeout
from gpufair.client.insight import BudgetsOverTime, Coaching, Deliveries, GpuHistory, Plan, Preview, Pyramid, Tour
from gpufair.client.machines import CpuPool, NodeView
from gpufair.client.pools import PoolView
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
from gpufair.client.verification import Kind, kind_of, verified

Result = TypeVar("Result")


class Client:
    """A client of the service. Use it as a context manager, or ``close`` it.

    Nothing is sent before the first call. All methods raise ``Unavailable`` when the service cannot be reached,
    ``Refused`` (``NotFound``, ``Unauthorized``) when it says no, ``ServiceError`` when it fails.
    """

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        patience: Patience = Patience(),  # noqa: B008  # frozen
        transport: httpx.BaseTransport | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._where = source(endpoint, url, token, state_dir, environ)
        self._patience, self._transport = patience, transport
        self._http: tuple[Kind, httpx.Client] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http[1].close()
            self._http = None

    def endpoint(self) -> Endpoint:
        """The endpoint in use."""
        return self._where.get()

    def send(self, call: Call[Result]) -> Result:
        """Send ``call``, again where that is safe, and read the answer."""
        tries = Tries(call, self._patience, self._where)
        while True:
            endpoint = None
            try:
                endpoint = self._where.get()
                method, url, given = arguments(endpoint, call, self._patience.timeout_s)
                answer = self._client(endpoint).request(method, url, **given)  # type: ignore[arg-type]
            except (httpx.TransportError, Unavailable) as err:
                pause: float | None = tries.after_error(err, endpoint)
            else:
                pause = tries.after_answer(answer)
                if pause is None:
                    return result(call, answer)
            time.sleep(pause or 0.0)

    def events(self, *, holder: bool = False, user: str | None = None) -> Generator[Event, None, None]:
        """Workloads as they change, for ever: a broken stream is announced (``Disconnected``) and opened again.

        ``holder``: keep an embedded service alive while connected. ``user``: only that one's; ``Others`` tells of the rest.
        Blocks while nothing happens.
        Raises: Refused: The service says no to this token.
        """
        follower = Follower(self._where)
        while True:
            endpoint = err = None
            try:
                endpoint = self._where.get()
                with self._client(endpoint).stream(
                    "GET",
                    f"{endpoint.url}{API}/events",
                    params={"holder": str(int(holder))} | ({} if user is None else {"user": user}),
                    headers=headers(endpoint, follower.headers()),
                    timeout=stream_timeout(),
                ) as answer:
                    if answer.status_code != 200:
                        raise refusal(answer, answer.read())
                    yield from follower.opened(answer.headers)
                    for chunk in answer.iter_bytes():
                        yield from follower.received(chunk)
            except (httpx.HTTPError, ClientError) as caught:
                err = caught
            lost = follower.lost(err, endpoint)
            yield lost
            time.sleep(lost.retry_in_s)

    def _client(self, endpoint: Endpoint) -> httpx.Client:
        kind = kind_of(endpoint)
        if self._http is None or self._http[0] != kind:
            verify = verified(endpoint)
            self.close()
            self._http = (kind, httpx.Client(trust_env=kind[0], verify=verify, transport=self._transport))
        return self._http[1]

    def status(self) -> Status:
        """See ``calls.status``."""
        return self.send(calls.status())

    def submit(self, launch: Mapping[str, Any], **spec: Any) -> Workload:
        """See ``calls.submit``."""
        return self.send(calls.submit(launch, **spec))

    def workloads(
        self, state: str | None = None, user: str | None = None, notebook: str | None = None
    ) -> tuple[Workload, ...]:
        """See ``calls.workloads``."""
        return self.send(calls.workloads(state, user, notebook))

    def workload(self, workload_id: str) -> Workload:
        """See ``calls.workload``."""
        return self.send(calls.workload(workload_id))

    def stop(self, workload_id: str) -> Workload | None:
        """See ``calls.stop``."""
        return self.send(calls.stop(workload_id))

    def checkpoint(self, workload_id: str) -> Workload:
        """Save it and let it go on."""
        return self.send(calls.act(workload_id, "checkpoint"))

    def park(self, workload_id: str) -> Workload:
        """Save it and give its GPUs back."""
        return self.send(calls.act(workload_id, "park"))

    def resume(self, workload_id: str, *, from_checkpoint: bool = True, slice_s: float | None = None) -> Workload:
        """See ``calls.resume``."""
        return self.send(calls.resume(workload_id, from_checkpoint=from_checkpoint, slice_s=slice_s))

    def open_on_cpu(self, workload_id: str) -> Workload:
        """Open a session on a CPU node, with its variables and free of charge, until it has GPUs again.

        One that holds GPUs is saved and gives them back first; ``move`` says how that goes.
        """
        return self.send(calls.act(workload_id, "resume", {"on_cpu": True}))

    def dismiss(self, workload_id: str) -> Workload:
        """Say no to what is suggested about a session, until it starts anew."""
        return self.send(calls.act(workload_id, "dismiss"))

    def amend(self, workload_id: str, **wish: object) -> Workload:
        """See ``calls.amend``."""
        return self.send(calls.amend(workload_id, **wish))

    def tour(self, user: str | None = None) -> Tour:
        """See ``calls.tour``."""
        return self.send(calls.tour(user))

    def extend(self, workload_id: str, min_runtime_s: float) -> Workload:
        """See ``calls.extend``."""
        return self.send(calls.extend(workload_id, min_runtime_s))

    def restart(self, workload_id: str) -> Workload:
        """Start its kernel anew on the same GPUs, without its variables."""
        return self.send(calls.act(workload_id, "restart"))

    def restore(self, workload_id: str, checkpoint: str | None = None) -> Workload:
        """Load its last checkpoint into the live kernel."""
        return self.send(calls.restore(workload_id, checkpoint))

    def ask_preflight(self, workload_id: str) -> Workload:
        """Ask its kernel what a checkpoint would be like; ``preflight`` has the answer when no cell runs."""
        return self.send(calls.act(workload_id, "preflight"))

    def preflight(self, workload_id: str) -> PreflightView | None:
        """See ``calls.preflight``."""
        return self.send(calls.preflight(workload_id))

    def interrupt(self, workload_id: str) -> Workload:
        """Interrupt the running cell."""
        return self.send(calls.act(workload_id, "interrupt"))

    def why(self, workload_id: str) -> Explanation:
        """See ``calls.why``."""
        return self.send(calls.why(workload_id))

    def connection(self, workload_id: str) -> Connection:
        """See ``calls.connection``."""
        return self.send(calls.connection(workload_id))

    def outputs(self, workload_id: str) -> list[dict[str, Any]]:
        """See ``calls.outputs``."""
        return self.send(calls.outputs(workload_id))

    def log(self, workload_id: str, after: int = 0, *, rank: int = 0) -> LogPage:
        """See ``calls.log``."""
        return self.send(calls.log(workload_id, after, rank=rank))

    def checkpoints(self, workload_id: str) -> tuple[CheckpointView, ...]:
        """See ``calls.checkpoints``."""
        return self.send(calls.checkpoints(workload_id))

    def verify_checkpoints(self, workload_id: str) -> tuple[CheckedCheckpoint, ...]:
        """See ``calls.verify_checkpoints``."""
        return self.send(calls.verify_checkpoints(workload_id))

    def prune_checkpoints(self, workload_id: str, keep: int = 2, keep_s: float = 0.0) -> tuple[str, ...]:
        """See ``calls.prune_checkpoints``."""
        return self.send(calls.prune_checkpoints(workload_id, keep, keep_s))

    def export_checkpoint(self, workload_id: str, checkpoint: str, file: BinaryIO) -> int:
        """Write a checkpoint as a tar file to ``file``; the bytes written. What a failure has left in it is incomplete."""
        endpoint, count = self._where.get(), 0
        with self._client(endpoint).stream(
            "GET",
            endpoint.url + calls.export_path(workload_id, checkpoint),
            headers=headers(endpoint, {}),
            timeout=stream_timeout(),
        ) as answer:
            if answer.status_code != 200:
                raise refusal(answer, answer.read())
            for chunk in answer.iter_bytes():
                count += file.write(chunk)
        return count

    def queue(self) -> Queue:
        """See ``calls.queue``."""
        return self.send(calls.queue())

    def budgets(self) -> Budgets:
        """See ``calls.budgets``."""
        return self.send(calls.budgets())

    def budgets_why(self, allocation: str) -> AllocationExplanation:
        """See ``calls.budgets_why``."""
        return self.send(calls.budgets_why(allocation))

    def apply_budgets(self, toml: bytes, why: str = "") -> Budgets:
        """See ``calls.apply_budgets``."""
        return self.send(calls.apply_budgets(toml, why))

    def budget_requests(
        self, states: Iterable[str] = (), user: str = "", before: int = 0, limit: int = 100
    ) -> BudgetRequests:
        """See ``budgeting.requests``."""
        return self.send(budgeting.requests(states, user, before, limit))

    def budget_request(self, number: int) -> BudgetRequest:
        """See ``budgeting.request``."""
        return self.send(budgeting.request(number))

    def ask_budget(self, shares: Mapping[str, object] | None = None, why: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.ask``."""
        return self.send(budgeting.ask(shares, why, **more))

    def plan_budget(self, shares: Mapping[str, object], why: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.plan``."""
        return self.send(budgeting.plan(shares, why, **more))

    def decide_budget(self, number: int, verb: str, words: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.decide``."""
        return self.send(budgeting.decide(number, verb, words, **more))

    def budget_history(self, before: int = 0, limit: int = 100) -> BudgetHistory:
        """See ``budgeting.history``."""
        return self.send(budgeting.history(before, limit))

    def nodes(self) -> tuple[NodeView, ...]:
        """See ``calls.nodes``."""
        return self.send(calls.nodes())

    def cordon(self, node: str) -> NodeView:
        """Let nothing new start there."""
        return self.send(calls.cordon(node))

    def uncordon(self, node: str) -> NodeView:
        """Let it take workloads again."""
        return self.send(calls.cordon(node, on=False))

    def drain(self, node: str, *, within_s: float | None = None, force: bool = False) -> NodeView:
        """See ``calls.drain``."""
        return self.send(calls.drain(node, within_s=within_s, force=force))

    def remove_node(self, node: str) -> NodeView:
        """See ``calls.remove_node``."""
        return self.send(calls.remove_node(node))

    def maintenance(self) -> tuple[Plan, ...]:
        """See ``calls.maintenance``."""
        return self.send(calls.maintenance())

    def plan_maintenance(self, nodes: Sequence[str], at_s: float, id: str | None = None) -> tuple[Plan, ...]:  # noqa: A002  # the wire's own word
        """See ``calls.plan_maintenance``."""
        return self.send(calls.plan_maintenance(nodes, at_s, id))

    def cancel_maintenance(self, plan: str) -> tuple[Plan, ...]:
        """See ``calls.cancel_maintenance``."""
        return self.send(calls.cancel_maintenance(plan))

    def announcements(self, every: bool = False, before: int = 0, limit: int = 100) -> Announcements:
        """See ``announcing.announcements``."""
        return self.send(announcing.announcements(every, before, limit))

    def announce(
        self,
        text: str,
        severity: str = "info",
        link: str = "",
        from_s: float | None = None,
        until_s: float | None = None,
        key: str | None = None,
    ) -> Announcement:
        """See ``announcing.announce``."""
        return self.send(announcing.announce(text, severity, link, from_s, until_s, key))

    def withdraw_announcement(self, number: int) -> Announcement:
        """See ``announcing.withdraw_announcement``."""
        return self.send(announcing.withdraw_announcement(number))

    def pools(self) -> tuple[PoolView, ...]:
        """See ``pools.pools``."""
        return self.send(pools.pools())

    def cordon_pool(self, pool: str) -> PoolView:
        """See ``pools.cordon``."""
        return self.send(pools.cordon(pool))

    def uncordon_pool(self, pool: str) -> PoolView:
        """See ``pools.uncordon``."""
        return self.send(pools.uncordon(pool))

    def drain_pool(self, pool: str, *, within_s: float | None = None, force: bool = False) -> PoolView:
        """See ``pools.drain``."""
        return self.send(pools.drain(pool, within_s=within_s, force=force))

    def profiles(self) -> tuple[Profile, ...]:
        """See ``calls.profiles``."""
        return self.send(calls.profiles())

    def preview(self, hours: float = 8.0) -> Preview:
        """See ``calls.preview``."""
        return self.send(calls.preview(hours))

    def coach(self, **wish: object) -> Coaching:
        """See ``calls.coach``."""
        return self.send(calls.coach(**wish))

    def pyramid(self, since_s: float | None = None, until_s: float | None = None) -> Pyramid:
        """See ``calls.pyramid``."""
        return self.send(calls.pyramid(since_s, until_s))

    def delivered(self, since_s: float | None = None, until_s: float | None = None) -> Deliveries:
        """See ``calls.delivered``."""
        return self.send(calls.delivered(since_s, until_s))

    def budgets_over_time(
        self, allocation: str | None = None, since_s: float | None = None, until_s: float | None = None, bins: int = 168
    ) -> BudgetsOverTime:
        """See ``calls.budgets_over_time``."""
        return self.send(calls.budgets_over_time(allocation, since_s, until_s, bins))

    def history(self, hours: float = 6.0, node: str | None = None) -> GpuHistory:
        """See ``calls.history``."""
        return self.send(calls.history(hours, node))

    def conservation(self) -> dict[str, Any]:
        """See ``calls.conservation``."""
        return self.send(calls.conservation())

    def timeline(self, after: int = 0) -> list[dict[str, Any]]:
        """See ``calls.timeline``."""
        return self.send(calls.timeline(after))

    def cpu_pool(self) -> CpuPool:
        """See ``calls.cpu_pool``."""
        return self.send(calls.cpu_pool())

    def join_cpu_pool(self, workload: str | None = None) -> CpuPool:
        """See ``calls.join_cpu_pool``."""
        return self.send(calls.join_cpu_pool(workload))

    def reload(self) -> Reloaded:
        """See ``calls.reload``."""
        return self.send(calls.reload())

    def snapshot(self) -> dict[str, Any]:
        """See ``calls.snapshot``."""
        return self.send(calls.snapshot())

    def timeline_page(self, after: int = 0, **which: Any) -> dict[str, Any]:
        """See ``calls.timeline_page``."""
        return self.send(calls.timeline_page(after, **which))
