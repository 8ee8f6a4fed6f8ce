"""The life of the agent in a pod: one workload, then the end; and the end at SIGTERM, whatever it was doing."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpufair.node.agent import Agent
from gpufair.node.files import read_json, write_json
from gpufair.node.life import Life
from gpufair.node.pod_config import LEFT_FILE, MARGIN_S, MOST_PART, PodConfig
from gpufair.node.pod_exits import PodExit
from gpufair.node.service_calls import Refused, WrongService
from gpufair.node.supervisor import START_FILE
from gpufair.wire import Command

NOTICE = "Its pod was told to end: a drain, an eviction, or a preemption."
# The service says first why and by when a pod is to end, and then has it ended. So for a moment its word is waited for.
WORD_S: Final = 1.0
LAST_S: Final = 1.5  # before the very end, which comes without a warning
LOOK_S: Final = 1.0
IDLE_S: Final = 10.0  # told to end, and without anything that could be lost: so long it tries to say so
REFUSED_S: Final = 30.0  # a service that is only just being set up may refuse a token, too
_NO: Final = frozenset({401, 403})
_UNKNOWN: Final = frozenset({401, 403, 429})  # too many wrong ones are answered otherwise
_log = logging.getLogger(__name__)


class OneWorkload(Life):
    """Attributes: code: how it ends; None as long as it goes on."""

    def __init__(self, config: PodConfig, problem: str = "") -> None:
        """``problem``: why nothing can run in this pod; said when it is to."""
        self._config, self._problem = config, problem
        self._key = config.workload, config.incarnation
        self._agent: Agent | None = None
        self._told: asyncio.Task[None] | None = None  # SIGTERM came
        self._done = asyncio.Event()
        self._reached = False
        self._refused_since: float | None = None  # monotonic
        self._left: Path | None = None  # where it is written down what the service does not know
        self._lines = 0  # how much
        self.code: PodExit | None = None

    def attach(self, agent: Agent) -> None:
        """Whose life this is."""
        self._agent = agent

    @property
    def agent(self) -> Agent:
        """Whose life this is."""
        assert self._agent is not None, "attached right after both were made"
        return self._agent

    # ---------------------------------------------------------------- what the agent tells

    def answered(self) -> None:
        """See ``Life``."""
        self._reached, self._refused_since = True, None

    def unanswered(self, error: Exception) -> None:
        """See ``Life``."""
        status = error.status if isinstance(error, Refused) else 0
        if isinstance(error, WrongService) or status in _NO:
            if self._refused_since is None:
                self._refused_since = time.monotonic()
                _log.error("%s", error)
        elif status not in _UNKNOWN:
            self._refused_since = None
        refused = self._refused_since is not None and time.monotonic() - self._refused_since > REFUSED_S
        if refused and self.agent.runs(self._key) is None:
            self._end(PodExit.REFUSED)

    def refuses(self, command: Command) -> str:
        """See ``Life``."""
        if (command.workload, command.incarnation) != self._key:
            return f"pod {self._config.pod} is for {self._key[0]}, start {self._key[1]}, and for nothing else"
        return self._problem

    def ended(self, key: tuple[str, int], kind: str, body: dict[str, Any]) -> None:
        """See ``Life``."""
        if key == self._key:
            self._end(_code_of(kind, body))

    async def over(self) -> None:
        """See ``Life``."""
        await self._done.wait()

    # ---------------------------------------------------------------- the end

    def told_to_end(self) -> None:
        """SIGTERM: the pod is killed when its grace is over. A second one changes nothing."""
        if self._told is None:
            self._told = asyncio.create_task(self._leave(time.monotonic() + self._config.grace_s), name="leave")

    async def _leave(self, killed: float) -> None:
        """``killed``: when, by the monotonic clock."""
        grace = self._config.grace_s
        margin, last = (min(span, MOST_PART * grace) for span in (MARGIN_S, LAST_S))
        _log.info("told to end: all is to be saved and reported within %.0f s", grace)
        if self.agent.runs(self._key) is not None:
            await asyncio.sleep(min(WORD_S, margin / 2))
        deadline_s = time.time() + killed - time.monotonic() - margin
        self.agent.leave(deadline_s, NOTICE)
        if self.agent.runs(self._key) is None and not self.agent.unsaid():
            self.agent.say(self._key, "released", {"busy": False})
            killed = min(killed, time.monotonic() + IDLE_S)
        while (left_s := killed - last - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))
            item = self.agent.runs(self._key)
            if item is not None and item.finished:
                # Whoever deletes a pod may give it less time than it was made with, and it is not told.
                self.leave_behind()
        self._end(PodExit.OUT_OF_TIME)

    def abandoned(self) -> PodExit:
        """The exit status where the linger time was over: nobody is there to report to."""
        if self.code is None:
            if self._reached:
                self.code = PodExit.SERVICE_LOST
            else:
                self.code = PodExit.NEVER_REACHED if self._refused_since is None else PodExit.REFUSED
        return self.code

    def _end(self, code: PodExit) -> None:
        if self.code is None:
            self.code = code
            self._done.set()

    def leave_behind(self) -> Path | None:
        """Write down what the service does not know, where it finds it: beside the records. Returns the file, if any.

        The pod's own folder is gone with the pod, but the records are the service's. Once all is said after all, the file
        goes.
        """
        item, unsaid = self.agent.runs(self._key), self.agent.unsaid()
        if item is None or not unsaid:
            if self._left is not None:
                with suppress(OSError):  # at worst the service reads what it knows
                    self._left.unlink(missing_ok=True)
            return None
        if len(unsaid) == self._lines and self._left is not None:
            return self._left
        start = read_json(item.folder / START_FILE) or {}
        try:
            path = Path(start["args"]["record_dir"]) / LEFT_FILE.format(pod=self._config.pod)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(path, {"reports": unsaid})
        except (OSError, KeyError, TypeError) as err:
            _log.error("what the service does not know cannot be left behind: %s", err)
            return None
        self._left, self._lines = path, len(unsaid)
        return path


def _code_of(kind: str, body: dict[str, Any]) -> PodExit:
    if kind == "start_failed":
        return PodExit.NOT_STARTED
    failed = kind == "exited" and body.get("outcome") != "completed"
    return PodExit.FAILED if failed else PodExit.IN_ORDER
