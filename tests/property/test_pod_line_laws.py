"""Between a pod and the service nothing is lost and nothing is done twice, wherever either side is cut off.

The service's end is the real one. The pod's is its real outbox in front of a log like a supervisor's, which an agent
that is killed finds again. Between them answers get lost; the service is killed and forgets all but its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.units import WorkloadId
from gpufair.node.outbox import Outbox
from gpufair.service.nodes.pods import PodLines
from gpufair.service.problems import HelloFirst, UnknownPod
from gpufair.service.storage.store import StoreUnavailable
from gpufair.wire import API_VERSION, AgentHello, Command, NodeInventory, Report, from_json

POD, KEY = "gpufair-w-1-0", ("w", 1)
STEPS = (
    "hello",
    "poll",
    "poll, and the answer is lost",
    "work",  # something worth a report happens
    "report",
    "report, and the answer is lost",
    "report, while the store is away",
    "the agent is killed",
    "the service is killed",
    "the service is killed, and finds no pod yet",
    "found",
    "notice",
    "interrupt",
)


class Journal:
    """What the service never forgets, and what it decided."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int]] = []  # (boot and number of the agent, number of the supervisor)
        self.noticed = False
        self.away = False

    @property
    def started(self) -> bool:
        """Whether it is known there that the workload runs."""
        return bool(self.reports)


class World:
    def __init__(self) -> None:
        self.journal = Journal()
        self.restarts = 0  # of the service
        self.lines = PodLines()
        self.interrupts = 0  # asked for
        # The pod
        self.log: list[int] = []  # what the supervisor has to say: its numbers
        self.kept = 0  # of these, acknowledged and noted in the pod
        self.boots = 0
        self.done: list[str] = []  # the effects of commands
        self.up()
        self.serve()
        self.lines.expect(POD, Command(0, "start", *KEY))

    # -- the service ----------------------------------------------------------------------------------------------

    def serve(self, *, found: bool = True) -> None:
        self.lines = PodLines()
        self.lines.on_reports, self.lines.start_of = self.take, self.start_of
        if found:
            self.find()

    def find(self) -> None:
        self.lines.adopt(POD, WorkloadId(KEY[0]), KEY[1])
        if self.journal.noticed:
            self.lines.send(POD, Command(0, "preempt", *KEY))  # the state says that it is due

    async def start_of(self, pod: str) -> Command | None:
        await asyncio.sleep(0)
        return None if self.journal.started else Command(0, "start", *KEY)

    async def take(self, pod: str, reports: Sequence[Report]) -> None:
        await asyncio.sleep(0)
        if self.journal.away:
            raise StoreUnavailable("away")
        for report in reports:
            self.journal.reports.append((f"{report.body['boot']}:{report.seq}", report.body["n"]))

    # -- the pod --------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """An agent begins: what was not acknowledged by what the pod has noted is queued anew."""
        self.boots += 1
        self.boot, self.after, self.greeted = f"boot-{self.boots}", 0, False
        self.outbox = Outbox()
        for number in self.log[self.kept :]:
            self.queue(number)

    def queue(self, number: int) -> None:
        def acknowledged() -> None:
            assert number in {known for _, known in self.journal.reports}, "acknowledged, and not durable"
            self.kept = max(self.kept, number)

        self.outbox.add(*KEY, "activity", {"n": number, "boot": self.boot}, 0.0, acknowledged)

    def work(self) -> None:
        if "start" in self.done:
            self.log.append(len(self.log) + 1)
            self.queue(self.log[-1])

    async def hello(self) -> None:
        running = (KEY,) if "start" in self.done else ()
        try:
            answer: Any = await self.lines.hello(POD, AgentHello(API_VERSION, self.boot, NodeInventory(POD), running))
        except UnknownPod:
            return
        self.greeted, self.after = True, answer["after"]
        if running:
            assert answer["expected"] == [list(KEY)], "what runs here is not killed"

    async def poll(self, *, lost: bool = False) -> None:
        try:
            commands = await self.lines.commands(POD, self.after, self.boot, 0.0)
        except (HelloFirst, UnknownPod):
            self.greeted = False
            return
        for command in () if lost else commands:
            self.after = max(self.after, command.seq)
            assert command.kind != "stop", "nobody has decided so"
            if command.kind == "interrupt" or command.kind not in self.done:
                self.done.append(command.kind)
                if command.kind == "start":
                    self.work()

    async def report(self, *, lost: bool = False) -> None:
        batch = [from_json(Report, one) for one in self.outbox.batch(2)]
        try:
            acked = await self.lines.reports(POD, self.boot, batch)
        except (HelloFirst, UnknownPod):
            self.greeted = False
        except StoreUnavailable:
            pass
        else:
            if not lost:
                self.outbox.acknowledged(acked)

    # -- what happens ---------------------------------------------------------------------------------------------

    async def take_step(self, step: str) -> None:
        match step:
            case "hello":
                await self.hello()
            case "poll" | "poll, and the answer is lost":
                await self.poll(lost="lost" in step)
            case "work":
                self.work()
            case "report" | "report, and the answer is lost":
                await self.report(lost="lost" in step)
            case "report, while the store is away":
                self.journal.away = True
                await self.report()
                self.journal.away = False
            case "the agent is killed":
                self.up()
            case "the service is killed":
                self.serve()
            case "the service is killed, and finds no pod yet":
                self.serve(found=False)
            case "found":
                self.find()
            case "notice":
                self.journal.noticed = True
                self.lines.send(POD, Command(0, "preempt", *KEY))
            case "interrupt":
                self.interrupts += self.lines.send(POD, Command(0, "interrupt", *KEY))
        self.check()

    def check(self) -> None:
        numbers = [number for _, number in self.journal.reports]
        first = list(dict.fromkeys(numbers))
        assert first == self.log[: len(first)], "each comes, in order, and none is left out"
        words = [word for word, _ in self.journal.reports]
        assert sorted(set(self.done) - {"interrupt"}) == sorted(one for one in self.done if one != "interrupt")
        assert self.restarts or len(set(words)) == len(words), "without a restart each comes once"

# Most things can only happen once the two have met.
MET = st.sampled_from(((), ("hello", "poll"), ("hello", "poll", "report", "work")))


@given(MET, st.lists(st.sampled_from(STEPS), max_size=40))
def test_nothing_is_lost_and_nothing_done_twice(met: tuple[str, ...], steps: list[str]) -> None:
    """Whatever is cut off, and whenever: in the end the pod has done what was decided, and the service knows all."""

    async def story() -> None:
        world = World()
        for step in (*met, *steps):
            world.restarts += "the service" in step
            await world.take_step(step)
        world.find()
        for _ in range(4 + 2 * len(steps)):  # all is well again
            if not world.greeted:
                await world.hello()
            await world.poll()
            await world.report()
            world.check()
        assert [number for _, number in dict.fromkeys(world.journal.reports)][-1:] == world.log[-1:]
        assert not world.outbox.batch()
        assert "start" in world.done
        assert world.done.count("preempt") == world.journal.noticed
        assert world.interrupts == 0 or world.restarts or "interrupt" in world.done or world.boots > 1

    asyncio.run(story())


@given(st.lists(st.sampled_from(STEPS), max_size=12), st.sampled_from(["answered", "lost"]))
def test_a_batch_that_meets_itself_is_taken_once(steps: list[str], how: str) -> None:
    """The pod has given up waiting and sends it again, while the first is still being written down."""

    async def story() -> None:
        world = World()
        for step in steps:
            world.restarts += "the service" in step
            await world.take_step(step)
        world.find()
        await world.hello()
        await world.poll()
        world.work()
        before = len(world.journal.reports)
        await asyncio.gather(world.report(lost=how == "lost"), world.report())
        news = world.journal.reports[before:]
        assert len(set(news)) == len(news) > 0
        world.check()

    asyncio.run(story())
