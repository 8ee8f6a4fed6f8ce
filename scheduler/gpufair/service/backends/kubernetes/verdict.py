"""What a pod's end, or its failure to begin, means for its workload, and the sentence that its owner reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gpufair.core.model import Outcome
from gpufair.service.backends.kubernetes.pod_status import Object, image_of, node_of


class Ending(StrEnum):
    """What a pod's end, or its failure to begin, means for its workload."""

    ENDED = "ended"  # in order: its agent has said the rest
    ELSEWHERE = "elsewhere"  # through no fault of the workload: it is queued again
    NOT_TAKEN = "not taken"  # by its node: likewise, but not at once, for it would be the same
    NOT_STARTED = "not started"  # perhaps by chance: it is tried again, a few times
    FAILED = "failed"  # the same would happen again: somebody has to change something first


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text``: for the workload's owner, with what to do. ``code``: the exit status of its container, if there was one."""

    ending: Ending
    text: str
    code: int | None = None

    def report(self, *, busy: bool = False) -> tuple[str, dict[str, Any]]:
        """Kind and body of the report (``gpufair.wire.Report``) that says so. ``busy``: whether a cell was running."""
        match self.ending:
            case Ending.FAILED:
                code = -1 if self.code is None else self.code
                return "exited", {"outcome": Outcome.FAILED.value, "code": code, "reason": self.text}
            case Ending.NOT_STARTED:
                return "start_failed", {"reason": self.text}
            case _:
                return "released", {"busy": busy}


# Of what was to be run in the container; a runtime misses files of its own as well, for a while.
NO_AGENT: Final = re.compile(
    r"executable file not found|No module named|exec format error|exec:? \"?[^\"\s:]+\"?: (?:stat \S+: )?(?:no such file or directory|permission denied)"
)


def not_run(pod: Object, said: str, code: int) -> Verdict:
    """Of a container that could not be run, by what its runtime said of that."""
    if NO_AGENT.search(said):
        return Verdict(
            Ending.FAILED,
            f"its image {image_of(pod)} cannot run the agent ({said}); it needs python with jupyter-gpufair on its PATH, built for this machine",
            code,
        )
    return Verdict(
        Ending.NOT_STARTED, f"the container could not be run on {node_of(pod)} ({said or 'no reason given'})", code
    )
