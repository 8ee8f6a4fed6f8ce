"""The service's end of each pod that runs a workload: what its agent is to do, and what it has to say.

A pod is a tiny node that runs one workload, and its agent speaks as those of nodes do (hello, commands, reports). Whoever
runs pods (a backend of the service) stands between: it gives each command to the pod's line, and takes each report
from it as its own. So a pod's report is durable before the pod hears that it is: the acknowledgement waits for
``on_reports``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpufair.clock import SystemClock
from gpufair.core.units import Instant, WorkloadId
from gpufair.service.nodes.channels import ONCE, Channel
from gpufair.service.nodes.inventory import LONGEST
from gpufair.service.problems import BadRequest, UnknownPod
from gpufair.wire import API_VERSION, COMMAND_WAIT_S, MAX_BOOT, AgentHello, Command, Report

FORGOTTEN: Final = 1000  # lines that are kept of pods which are gone, so that a late one is told to end
_log = logging.getLogger(__name__)

StartOf = Callable[[str], Awaitable[Command | None]]
OnReports = Callable[[str, Sequence[Report]], Awaitable[None]]


async def _nobody(pod: str, reports: Sequence[Report]) -> None:
    raise UnknownPod(pod)


async def _no_start(pod: str) -> Command | None:
    return None


@dataclass(slots=True)
class _Line:
    workload: WorkloadId
    incarnation: int
    channel: Channel
    told: dict[str, Command] = field(default_factory=dict)  # what is said once, by its kind; again after each hello
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one batch of reports after the other
    gone: bool = False  # nobody wants to hear of it

    @property
    def key(self) -> tuple[str, int]:
        return self.workload, self.incarnation

    def send(self, command: Command) -> None:
        if command.kind in ONCE:
            self.told.setdefault(command.kind, command)
        self.channel.send(command.kind, self.workload, self.incarnation, command.args)


class PodLines:
    """Speaks with the agents in pods, each known by the name of its pod.

    ``on_reports`` and ``start_of`` are set by whoever runs the pods, before it makes lines.

    Attributes:
        on_reports: Takes what a pod has to say, in order; durable when it returns. What it raises is answered to the
            pod, which sends the same again. May be given the same report twice where an answer got lost with a service.
        start_of: Asked about a pod that says hello, runs nothing, and was never given its start by this service:
            the start once more, or None if none is due. Such a pod is then told to stop.
    """

    def __init__(
        self,
        now: Callable[[], Instant] | None = None,
        wait_s: float = COMMAND_WAIT_S,
        epoch: int = 0,
    ) -> None:
        """``wait_s``: how long a poll may wait for a command; ``epoch``: see ``AgentHub``."""
        self.epoch = epoch
        self.on_reports: OnReports = _nobody
        self.start_of: StartOf = _no_start
        self._now, self._wait_s = now or SystemClock().now, wait_s
        self._lines: dict[str, _Line] = {}
        self._gone: dict[str, None] = {}  # those of the lines, the one that went first before the others

    # -- towards whoever runs the pods ----------------------------------------------------------------------------

    def expect(self, pod: str, start: Command) -> None:
        """A pod is about to be made for this start: its agent gets the command when it says hello. Twice is once."""
        self.adopt(pod, WorkloadId(start.workload), start.incarnation)
        self._lines[pod].send(start)

    def adopt(self, pod: str, workload: WorkloadId, incarnation: int) -> None:
        """A pod was found that an earlier service has made. Changes nothing of a line that there is."""
        known = self._lines.get(pod)
        if known is None or known.gone or known.key != (workload, incarnation):
            self._gone.pop(pod, None)
            self._lines[pod] = _Line(workload, incarnation, Channel(pod))

    def send(self, pod: str, command: Command) -> bool:
        """Give a command of its workload to a pod; it is told when it next asks. Returns False if there is no such line."""
        line = self._lines.get(pod)
        if line is None or line.gone or line.key != (command.workload, command.incarnation):
            return False
        line.send(command)
        return True

    def forget(self, pod: str) -> None:
        """The pod is gone. If its agent speaks all the same, it is told that nothing of it is expected any more."""
        line = self._lines.get(pod)
        if line is None or line.gone:
            return
        line.gone, line.told = True, {}
        self._gone[pod] = None
        while len(self._gone) > FORGOTTEN:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._lines[oldest]
        _end(line)

    def last_seen(self, pod: str) -> Instant | None:
        """When its agent was last heard; None: not yet by this service."""
        line = self._lines.get(pod)
        return line.channel.last_seen if line else None

    def heard(self, pod: str) -> bool:
        """Whether its agent has said hello to this service."""
        line = self._lines.get(pod)
        return bool(line and line.channel.boot)

    def close(self) -> None:
        """End all polls."""
        for line in self._lines.values():
            _end(line)

    # -- towards the agents in pods -------------------------------------------------------------------------------

    async def hello(self, pod: str, hello: AgentHello) -> dict[str, object]:
        """An agent came up, or found a restarted service: agree on what is to run.

        Raises:
            BadRequest: It speaks another version, or for another pod.
            UnknownPod: There is no line of that pod, at least not yet.
        """
        if hello.api_version != API_VERSION:
            raise BadRequest(
                f"the agent in the pod speaks version {hello.api_version}, this service {API_VERSION}; update the older: "
                "the kernel's image and the service have to be of the same release"
            )
        if hello.node.name != pod or not (0 < len(hello.boot) <= MAX_BOOT and hello.boot.isprintable()):
            raise BadRequest(
                f"a hello to {pod!r} has to be of that pod, with a boot id of 1 to {MAX_BOOT} printable characters; "
                f"it names {hello.node.name[:LONGEST]!r}"
            )
        line = self._line(pod)
        running = {(str(workload), incarnation) for workload, incarnation in hello.running}
        start = None
        if line.key not in running and not line.gone and not ({"start", "stop"} & set(line.told)):
            start = await self.start_of(pod)
            line = self._line(pod)
        after = self._greet(line, hello.boot, running, start)
        line.channel.last_seen = self._now()
        line.channel.version = hello.version[:LONGEST]
        _log.info("the agent in pod %s said hello: it %s its workload", pod, "has" if line.key in running else "awaits")
        expected = [list(line.key)] if line.key in running and not line.gone else []
        return {"after": after, "expected": expected, "epoch": self.epoch}

    def _greet(self, line: _Line, boot: str, running: set[tuple[str, int]], start: Command | None) -> int:
        """Begin the line anew: what is said once is repeated; the rest as far as the agent has not fetched it."""
        channel = line.channel
        rest = [command for command in channel.line if command.kind not in ONCE]
        acked = channel.acked if channel.boot == boot else 0  # it merely lost its connection
        after = channel.hello(boot)
        channel.acked = acked
        if line.key not in running:
            if start is not None:
                line.told.setdefault("start", start)
            if line.gone or "start" not in line.told:
                # It has nothing, and nothing is due: it says so, and ends.
                line.told.setdefault("stop", Command(0, "stop", line.workload, line.incarnation))
        for kind in ("start", "preempt", "stop"):
            if kind in line.told and (kind != "start" or line.key not in running):
                line.send(line.told[kind])
        for command in rest:
            line.send(command)
        return after

    async def commands(self, pod: str, after: int, boot: str, wait_s: float = COMMAND_WAIT_S) -> list[Command]:
        """What the agent is to do next; waits for it for up to ``wait_s``.

        Raises:
            HelloFirst: Its boot is not known.
            UnknownPod: There is no line of that pod.
        """
        channel = self._line(pod).channel
        channel.last_seen = self._now()
        try:
            return await channel.poll(after, boot, min(wait_s, self._wait_s))
        finally:
            channel.last_seen = self._now()

    async def reports(self, pod: str, boot: str, reports: Sequence[Report]) -> int:
        """Take reports in; they are durable when this returns.

        Returns: The number of the last one.

        Raises:
            HelloFirst: The boot is not known.
            UnknownPod: There is no line of that pod.
            GpufairError: Whatever ``on_reports`` raises: send them again.
        """
        line = self._line(pod)
        channel = line.channel
        channel.require(boot)
        channel.last_seen = self._now()
        async with line.turn:  # a batch that is sent again may meet itself
            channel.require(boot)
            news = [report for report in reports if report.seq > channel.acked]
            if own := [report for report in news if not line.gone and self._own(pod, line, report)]:
                await self.on_reports(pod, own)
            if news and channel.boot == boot:
                channel.acked = max(channel.acked, *(report.seq for report in news))
            return channel.acked

    def told(self, pod: str, problems: Sequence[str] | None, now_s: float | None) -> None:
        """An agent has said how its machine is, and what time it is there."""
        if (line := self._lines.get(pod)) is None:
            return
        if problems is not None and tuple(problems) != line.channel.problems:
            for text in set(problems) - set(line.channel.problems):
                _log.warning("pod %s: %s", pod, text)
            line.channel.problems = tuple(problems)
        if now_s is not None:
            line.channel.skew_s = round(now_s - self._now() / 1000, 3)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _line(self, pod: str) -> _Line:
        line = self._lines.get(pod)
        if line is None:
            raise UnknownPod(pod)
        return line

    @staticmethod
    def _own(pod: str, line: _Line, report: Report) -> bool:
        """Whether a report is about the workload of its pod: a token opens nothing else."""
        if (report.workload, report.incarnation) == line.key:
            return True
        _log.warning("pod %s speaks of workload %s, which is not its own; left out", pod, report.workload[:80])
        return False


def _end(line: _Line) -> None:
    line.channel.boot = ""
    line.channel.arrived.set()
