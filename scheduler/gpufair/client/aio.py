"""The service, called from an event loop that it never blocks. What each method means is said at its builder in ``gpufair.client.calls``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
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


class AsyncClient:
    """``Client`` for event loops, with the same methods. Use it as a context manager, or ``close`` it.

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
        transport: httpx.AsyncBaseTransport | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._where = source(endpoint, url, token, state_dir, environ)
        self._patience, self._transport = patience, transport
        self._http: tuple[Kind, httpx.AsyncClient] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http[1].aclose()
            self._http = None

    async def endpoint(self) -> Endpoint:
        """The endpoint in use."""
        return await self._endpoint()

    async def send(self, call: Call[Result]) -> Result:
        """Send ``call``, again where that is safe, and read the answer."""
        tries = Tries(call, self._patience, self._where)
        while True:
            endpoint = None
            try:
                endpoint = await self._endpoint()
                method, url, given = arguments(endpoint, call, self._patience.timeout_s)
                answer = await (await self._client(endpoint)).request(method, url, **given)  # type: ignore[arg-type]
            except (httpx.TransportError, Unavailable) as err:
                pause: float | None = tries.after_error(err, endpoint)
            else:
                pause = tries.after_answer(answer)
                if pause is None:
                    return result(call, answer)
            await asyncio.sleep(pause or 0.0)

    async def events(self, *, holder: bool = False, user: str | None = None) -> AsyncGenerator[Event, None]:
        """Workloads as they change, for ever: a broken stream is announced (``Disconnected``) and opened again.

        ``holder``: keep an embedded service alive while connected. ``user``: only that one's; ``Others`` tells of the rest.
        Close it with ``aclose`` (``contextlib.aclosing``).
        Raises: Refused: The service says no to this token.
        """
        follower = Follower(self._where)
        while True:
            endpoint = err = None
            try:
                endpoint = await self._endpoint()
                client = await self._client(endpoint)
                async with client.stream(
                    "GET",
                    f"{endpoint.url}{API}/events",
                    params={"holder": str(int(holder))} | ({} if user is None else {"user": user}),
                    headers=headers(endpoint, follower.headers()),
                    timeout=stream_timeout(),
                ) as answer:
                    if answer.status_code != 200:
                        raise refusal(answer, await answer.aread())
                    for event in follower.opened(answer.headers):
                        yield event
                    async for chunk in answer.aiter_bytes():
                        for event in follower.received(chunk):
                            yield event
            except (httpx.HTTPError, ClientError) as caught:
                err = caught
            lost = follower.lost(err, endpoint)
            yield lost
            await asyncio.sleep(lost.retry_in_s)

    async def _endpoint(self) -> Endpoint:
        # Looking is reading a file, perhaps on a slow home folder.
        known = self._where.known
        return known if known is not None else await asyncio.to_thread(self._where.get)

    async def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        kind = kind_of(endpoint)
        if self._http is None or self._http[0] != kind:
            # Reading certificates takes a while, in which another call may have been here.
            verify = await asyncio.to_thread(verified, endpoint) if kind[1] else False
        if self._http is None or self._http[0] != kind:
            await self.close()
            self._http = (kind, httpx.AsyncClient(trust_env=kind[0], verify=verify, transport=self._transport))
        return self._http[1]

    async def status(self) -> Status:
        """See ``calls.status``."""
        return await self.send(calls.status())

    async def submit(self, launch: Mapping[str, Any], **spec: Any) -> Workload:
        """See ``calls.submit``."""
        return await self.send(calls.submit(launch, **spec))

    async def workloads(
        self, state: str | None = None, user: str | None = None, notebook: str | None = None
    ) -> tuple[Workload, ...]:
        """See ``calls.workloads``."""
        return await self.send(calls.workloads(state, user, notebook))

    async def workload(self, workload_id: str) -> Workload:
        """See ``calls.workload``."""
        return await self.send(calls.workload(workload_id))

    async def stop(self, workload_id: str) -> Workload | None:
        """See ``calls.stop``."""
        return await self.send(calls.stop(workload_id))

    async def checkpoint(self, workload_id: str) -> Workload:
        """Save it and let it go on."""
        return await self.send(calls.act(workload_id, "checkpoint"))

    async def park(self, workload_id: str) -> Workload:
        """Save it and give its GPUs back."""
        return await self.send(calls.act(workload_id, "park"))

    async def resume(self, workload_id: str, *, from_checkpoint: bool = True, slice_s: float | None = None) -> Workload:
        """See ``calls.resume``."""
        return await self.send(calls.resume(workload_id, from_checkpoint=from_checkpoint, slice_s=slice_s))

    async def open_on_cpu(self, workload_id: str) -> Workload:
        """Open a session on a CPU node, with its variables and free of charge, until it has GPUs again.

        One that holds GPUs is saved and gives them back first; ``move`` says how that goes.
        """
        return await self.send(calls.act(workload_id, "resume", {"on_cpu": True}))

    async def dismiss(self, workload_id: str) -> Workload:
        """Say no to what is suggested about a session, until it starts anew."""
        return await self.send(calls.act(workload_id, "dismiss"))

    async def amend(self, workload_id: str, **wish: object) -> Workload:
        """See ``calls.amend``."""
        return await self.send(calls.amend(workload_id, **wish))

    async def tour(self, user: str | None = None) -> Tour:
        """See ``calls.tour``."""
        return await self.send(calls.tour(user))

    async def extend(self, workload_id: str, min_runtime_s: float) -> Workload:
        """See ``calls.extend``."""
        return await self.send(calls.extend(workload_id, min_runtime_s))

    async def restart(self, workload_id: str) -> Workload:
        """Start its kernel anew on the same GPUs, without its variables."""
        return await self.send(calls.act(workload_id, "restart"))

    async def restore(self, workload_id: str, checkpoint: str | None = None) -> Workload:
        """Load its last checkpoint into the live kernel."""
        return await self.send(calls.restore(workload_id, checkpoint))

    async def ask_preflight(self, workload_id: str) -> Workload:
        """Ask its kernel what a checkpoint would be like; ``preflight`` has the answer when no cell runs."""
        return await self.send(calls.act(workload_id, "preflight"))

    async def preflight(self, workload_id: str) -> PreflightView | None:
        """See ``calls.preflight``."""
        return await self.send(calls.preflight(workload_id))

    async def interrupt(self, workload_id: str) -> Workload:
        """Interrupt the running cell."""
        return await self.send(calls.act(workload_id, "interrupt"))

    async def why(self, workload_id: str) -> Explanation:
        """See ``calls.why``."""
        return await self.send(calls.why(workload_id))

    async def connection(self, workload_id: str) -> Connection:
        """See ``calls.connection``."""
        return await self.send(calls.connection(workload_id))

    async def outputs(self, workload_id: str) -> list[dict[str, Any]]:
        """See ``calls.outputs``."""
        return await self.send(calls.outputs(workload_id))

    async def log(self, workload_id: str, after: int = 0, *, rank: int = 0) -> LogPage:
        """See ``calls.log``."""
        return await self.send(calls.log(workload_id, after, rank=rank))

    async def checkpoints(self, workload_id: str) -> tuple[CheckpointView, ...]:
        """See ``calls.checkpoints``."""
        return await self.send(calls.checkpoints(workload_id))

    async def verify_checkpoints(self, workload_id: str) -> tuple[CheckedCheckpoint, ...]:
        """See ``calls.verify_checkpoints``."""
        return await self.send(calls.verify_checkpoints(workload_id))

    async def prune_checkpoints(self, workload_id: str, keep: int = 2, keep_s: float = 0.0) -> tuple[str, ...]:
        """See ``calls.prune_checkpoints``."""
        return await self.send(calls.prune_checkpoints(workload_id, keep, keep_s))

    async def export_checkpoint(self, workload_id: str, checkpoint: str, file: BinaryIO) -> int:
        """See ``Client.export_checkpoint``."""
        endpoint, count = await self._endpoint(), 0
        client = await self._client(endpoint)
        async with client.stream(
            "GET",
            endpoint.url + calls.export_path(workload_id, checkpoint),
            headers=headers(endpoint, {}),
            timeout=stream_timeout(),
        ) as answer:
            if answer.status_code != 200:
                raise refusal(answer, await answer.aread())
            async for chunk in answer.aiter_bytes():
                count += file.write(chunk)
        return count

    async def queue(self) -> Queue:
        """See ``calls.queue``."""
        return await self.send(calls.queue())

    async def budgets(self) -> Budgets:
        """See ``calls.budgets``."""
        return await self.send(calls.budgets())

    async def budgets_why(self, allocation: str) -> AllocationExplanation:
        """See ``calls.budgets_why``."""
        return await self.send(calls.budgets_why(allocation))

    async def apply_budgets(self, toml: bytes, why: str = "") -> Budgets:
        """See ``calls.apply_budgets``."""
        return await self.send(calls.apply_budgets(toml, why))

    async def budget_requests(
        self, states: Iterable[str] = (), user: str = "", before: int = 0, limit: int = 100
    ) -> BudgetRequests:
        """See ``budgeting.requests``."""
        return await self.send(budgeting.requests(states, user, before, limit))

    async def budget_request(self, number: int) -> BudgetRequest:
        """See ``budgeting.request``."""
        return await self.send(budgeting.request(number))

    async def ask_budget(self, shares: Mapping[str, object] | None = None, why: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.ask``."""
        return await self.send(budgeting.ask(shares, why, **more))

    async def plan_budget(self, shares: Mapping[str, object], why: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.plan``."""
        return await self.send(budgeting.plan(shares, why, **more))

    async def decide_budget(self, number: int, verb: str, words: str = "", **more: object) -> BudgetRequest:
        """See ``budgeting.decide``."""
        return await self.send(budgeting.decide(number, verb, words, **more))

    async def budget_history(self, before: int = 0, limit: int = 100) -> BudgetHistory:
        """See ``budgeting.history``."""
        return await self.send(budgeting.history(before, limit))

    async def nodes(self) -> tuple[NodeView, ...]:
        """See ``calls.nodes``."""
        return await self.send(calls.nodes())

    async def cordon(self, node: str) -> NodeView:
        """Let nothing new start there."""
        return await self.send(calls.cordon(node))

    async def uncordon(self, node: str) -> NodeView:
        """Let it take workloads again."""
        return await self.send(calls.cordon(node, on=False))

    async def drain(self, node: str, *, within_s: float | None = None, force: bool = False) -> NodeView:
        """See ``calls.drain``."""
        return await self.send(calls.drain(node, within_s=within_s, force=force))

    async def remove_node(self, node: str) -> NodeView:
        """See ``calls.remove_node``."""
        return await self.send(calls.remove_node(node))

    async def maintenance(self) -> tuple[Plan, ...]:
        """See ``calls.maintenance``."""
        return await self.send(calls.maintenance())

    async def plan_maintenance(self, nodes: Sequence[str], at_s: float, id: str | None = None) -> tuple[Plan, ...]:  # noqa: A002  # the wire's own word
        """See ``calls.plan_maintenance``."""
        return await self.send(calls.plan_maintenance(nodes, at_s, id))

    async def cancel_maintenance(self, plan: str) -> tuple[Plan, ...]:
        """See ``calls.cancel_maintenance``."""
        return await self.send(calls.cancel_maintenance(plan))

    async def announcements(self, every: bool = False, before: int = 0, limit: int = 100) -> Announcements:
        """See ``announcing.announcements``."""
        return await self.send(announcing.announcements(every, before, limit))

    async def announce(
        self,
        text: str,
        severity: str = "info",
        link: str = "",
        from_s: float | None = None,
        until_s: float | None = None,
        key: str | None = None,
    ) -> Announcement:
        """See ``announcing.announce``."""
        return await self.send(announcing.announce(text, severity, link, from_s, until_s, key))

    async def withdraw_announcement(self, number: int) -> Announcement:
        """See ``announcing.withdraw_announcement``."""
        return await self.send(announcing.withdraw_announcement(number))

    async def pools(self) -> tuple[PoolView, ...]:
        """See ``pools.pools``."""
        return await self.send(pools.pools())

    async def cordon_pool(self, pool: str) -> PoolView:
        """See ``pools.cordon``."""
        return await self.send(pools.cordon(pool))

    async def uncordon_pool(self, pool: str) -> PoolView:
        """See ``pools.uncordon``."""
        return await self.send(pools.uncordon(pool))

    async def drain_pool(self, pool: str, *, within_s: float | None = None, force: bool = False) -> PoolView:
        """See ``pools.drain``."""
        return await self.send(pools.drain(pool, within_s=within_s, force=force))

    async def profiles(self) -> tuple[Profile, ...]:
        """See ``calls.profiles``."""
        return await self.send(calls.profiles())

    async def preview(self, hours: float = 8.0) -> Preview:
        """See ``calls.preview``."""
        return await self.send(calls.preview(hours))

    async def coach(self, **wish: object) -> Coaching:
        """See ``calls.coach``."""
        return await self.send(calls.coach(**wish))

    async def pyramid(self, since_s: float | None = None, until_s: float | None = None) -> Pyramid:
        """See ``calls.pyramid``."""
        return await self.send(calls.pyramid(since_s, until_s))

    async def delivered(self, since_s: float | None = None, until_s: float | None = None) -> Deliveries:
        """See ``calls.delivered``."""
        return await self.send(calls.delivered(since_s, until_s))

    async def budgets_over_time(
        self, allocation: str | None = None, since_s: float | None = None, until_s: float | None = None, bins: int = 168
    ) -> BudgetsOverTime:
        """See ``calls.budgets_over_time``."""
        return await self.send(calls.budgets_over_time(allocation, since_s, until_s, bins))

    async def history(self, hours: float = 6.0, node: str | None = None) -> GpuHistory:
        """See ``calls.history``."""
        return await self.send(calls.history(hours, node))

    async def conservation(self) -> dict[str, Any]:
        """See ``calls.conservation``."""
        return await self.send(calls.conservation())

    async def timeline(self, after: int = 0) -> list[dict[str, Any]]:
        """See ``calls.timeline``."""
        return await self.send(calls.timeline(after))

    async def cpu_pool(self) -> CpuPool:
        """See ``calls.cpu_pool``."""
        return await self.send(calls.cpu_pool())

    async def join_cpu_pool(self, workload: str | None = None) -> CpuPool:
        """See ``calls.join_cpu_pool``."""
        return await self.send(calls.join_cpu_pool(workload))

    async def reload(self) -> Reloaded:
        """See ``calls.reload``."""
        return await self.send(calls.reload())

    async def snapshot(self) -> dict[str, Any]:
        """See ``calls.snapshot``."""
        return await self.send(calls.snapshot())

    async def timeline_page(self, after: int = 0, **which: Any) -> dict[str, Any]:
        """See ``calls.timeline_page``."""
        return await self.send(calls.timeline_page(after, **which))
