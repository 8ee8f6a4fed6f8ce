"""How far a job has come while it is played: what is done, what is durable, what it does now."""

from __future__ import annotations

from gpufair.core.model import Kind
from gpufair.core.units import Instant, Millis
from gpufair.sim.costs import Costs
from gpufair.sim.job import Burst
from gpufair.sim.story import Life, Stint


class Course:
    """A job under way. Its owner is the engine; nothing here knows of a policy.

    A run without bursts is one burst. Work goes on from ``since`` on, while that is not None; what was done before
    is ``done``, of which ``saved`` is in the last durable checkpoint that was taken on purpose (at a notice, at the
    end of a burst). While it works, it saves by itself every ``period``.
    """

    __slots__ = (
        "bursts",
        "done",
        "home",
        "incarnation",
        "life",
        "number",
        "period",
        "restore",
        "resumable",
        "save",
        "saved",
        "sequence",
        "session",
        "since",
        "stint",
        "target",
        "thinks",
        "token",
    )

    def __init__(self, life: Life, costs: Costs) -> None:
        job = life.job
        self.life = life
        self.session = job.spec.kind is Kind.SESSION
        self.resumable = job.spec.resumable
        self.bursts = job.bursts or (Burst(job.work, Millis(0)),)
        self.save, self.restore = costs.save(job.state_gib), costs.restore(job.state_gib)
        # Saving in the background takes a while as well: the next one starts when the last one is long over.
        self.period = max(costs.checkpoint_every, 2 * self.save) if costs.checkpoint_every and self.resumable else 0
        self.number = 0  # of the burst that is worked on, or thought after
        self.target = int(self.bursts[0].work)  # work done when it is over
        self.done = self.saved = self.sequence = self.incarnation = 0
        self.since: Instant | None = None
        self.stint: Stint | None = None
        self.thinks = False  # its user does, after a burst
        self.home = False  # its user is done with it, wherever it is
        self.token = 0  # what was planned with an earlier one does not happen

    @property
    def burst(self) -> Burst:
        """The one that is worked on, or thought after."""
        return self.bursts[self.number]

    @property
    def last(self) -> bool:
        """Whether no burst comes after this one."""
        return self.number == len(self.bursts) - 1

    @property
    def left(self) -> int:
        """Work until the burst is over, from ``since`` on."""
        return self.target - self.done

    def next_burst(self) -> None:
        """Its user goes on."""
        self.thinks = False
        self.number += 1
        self.target += self.burst.work

    def begin(self, now: Instant) -> None:
        """It works from now on."""
        self.since = now

    def durable(self, now: Instant) -> int:
        """Work that would be there after a restore if it were lost now."""
        if not self.resumable:
            return 0
        if self.since is None or not self.period:
            return self.saved
        return max(self.saved, self.done + max(0, now - self.since - self.save) // self.period * self.period)

    def pause(self, now: Instant) -> None:
        """It works no longer; what it has done so far is in memory."""
        if self.since is not None:
            self.saved = self.durable(now)  # what it has saved by itself remains, whatever comes of the next attempt
            worked = now - self.since
            self.done += worked
            if self.stint is not None:
                self.stint.worked = Millis(self.stint.worked + worked)
            self.since = None

    def lose(self, durable: int) -> None:
        """All but ``durable`` is gone. A burst that was over has to be worked on again."""
        lost = self.done - durable
        if self.stint is not None:
            self.stint.lost = Millis(self.stint.lost + lost)
        self.done = self.saved = durable
