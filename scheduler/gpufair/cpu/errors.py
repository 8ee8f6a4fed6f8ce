"""What can go wrong between a notebook and the CPU pool."""

from __future__ import annotations

from gpufair.core.errors import GpufairError


class Unpicklable(GpufairError):
    """Something that would have to travel to the pool, or back, cannot."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    def __str__(self) -> str:
        return f"{self.name} cannot travel between this notebook and the CPU pool: it {self.why}; make it where it is used instead"


class PoolMissing(GpufairError):
    """No pool can be reached or started."""

    def __init__(self, asked: str, why: str, remedy: str) -> None:
        super().__init__(asked, why, remedy)
        self.asked, self.why, self.remedy = asked, why, remedy

    def __str__(self) -> str:
        return f"{self.asked}: {self.why}; {self.remedy}"


class WrongEnvironment(GpufairError):
    """The workers run what this notebook cannot talk to."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(differences)
        self.differences = differences

    def __str__(self) -> str:
        return (
            f"the CPU pool's environment does not fit this notebook's: {'; '.join(self.differences)}. "
            "Start the workers from the environment of this notebook, or open the notebook with theirs"
        )


class PoolLost(GpufairError):
    """The scheduler of the pool is gone, and with it what it was asked for."""

    def __init__(self, address: str, *, renewed: bool = False) -> None:
        super().__init__(address)
        self.address = address
        self.renewed = renewed  # by who keeps it; the next use finds the new one

    def __str__(self) -> str:
        remedy = "Run the cell again: there is a new one by then" if self.renewed else "Call gpufair.cpu.connect() again and run the cell again"
        return (
            f"the CPU pool at {self.address} is gone, and with it the results that it held; this notebook's variables are "
            f"as they were. {remedy}"
        )


class WorkerDied(GpufairError):
    """Workers died while they ran this, each time that it was tried."""

    def __init__(self, what: str, attempts: int) -> None:
        super().__init__(what, attempts)
        self.what, self.attempts = what, attempts

    def __str__(self) -> str:
        return (
            f"{self.what} was tried {self.attempts} times, and each time its worker died; mostly that is too little memory. "
            "Send less data at once, or connect to a pool with fewer and larger workers"
        )


class WorkersGone(GpufairError):
    """The scheduler of the pool answers, but all its workers are gone and none came back."""

    def __init__(self, address: str, waited_s: float) -> None:
        super().__init__(address, waited_s)
        self.address, self.waited_s = address, waited_s

    def __str__(self) -> str:
        return (
            f"the CPU pool at {self.address} has lost all its workers, and none came for {self.waited_s:.0f} s; what you waited "
            "for was cancelled. Start workers there and run it again, or call gpufair.cpu.connect with another pool "
            "(workers_wait_s of it allows more time)"
        )


class Cancelled(GpufairError):
    """The task was cancelled: by an interrupt, or by ``Task.cancel``."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} was cancelled; submit it again if you want its result"


class RemoteFailure(GpufairError):
    """Code failed on a worker with an exception that cannot travel; its own text stands for it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class NotForThePool(GpufairError):
    """A cell says what only the notebook's own kernel can do."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"this cell cannot run in the CPU pool: {self.why}"
