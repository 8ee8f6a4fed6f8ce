"""Bodies of requests, checked strictly: unknown fields are refused, everything has a limit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpufair.service.settings.sizes import MAX_SIZE
from gpufair.service.workloads.retries import MOST
from gpufair.service.workloads.submission import Wanted
from gpufair.wire import MAX_BOOT, NOTIFY

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"
POD_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"  # names of pods, as Kubernetes has them

MOST_AWAITED = 1000  # each end of one is a small change of what is kept of all the others

WorkloadName = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
PlainName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Line = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")]
Label = Annotated[str, StringConstraints(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, StringConstraints(max_length=32_768)]
Hook = Text | Annotated[list[Text], Field(min_length=1, max_length=1000)]
Told = Annotated[str, StringConstraints(pattern=f"^({'|'.join(NOTIFY)})$")]
Seconds = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]


class Strict(BaseModel):
    """No unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Launch(Strict):
    """How to run it. Journalled, so secrets do not belong here."""

    type: Literal["kernel", "command"]
    argv: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    cwd: Text = ""
    env: Annotated[dict[Text, Text], Field(max_length=1000)] = {}
    kernel_name: Line = ""
    notebook: Annotated[str, StringConstraints(max_length=4096)] = ""
    # For kernels that cannot save themselves: a cell's text, or a command.
    on_preempt: Hook = ""
    on_resume: Hook = ""


class Wish(Strict):
    """What is asked for, without how to run it. Whatever is left out is the profile's, or the default."""

    profile: Line | None = None
    allocation: Line | None = None
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpu_type: Line | None = None
    min_runtime_s: Seconds | None = None
    kind: Literal["session", "batch"] | None = None
    name: Line | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    resumable: bool | None = None
    movable: bool | None = None
    user: PlainName | None = None
    expected_s: Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)] | None = None
    idle_release_s: Seconds | None = None
    cpus: Annotated[int, Field(ge=0, le=4096)] | None = None
    memory_bytes: Annotated[int, Field(ge=0, le=MAX_SIZE)] | None = None
    within: Label | None = None
    exclude: Annotated[list[PlainName], Field(max_length=256)] | None = None
    where: Annotated[dict[Label, Label], Field(max_length=16)] | None = None
    pools: Annotated[list[PlainName], Field(min_length=1, max_length=64)] | None = None

    def wanted(self, launch: dict[str, Any]) -> Wanted:
        """For ``submission.spec_of``."""
        names = set(Wanted.__dataclass_fields__) - {"launch", "pools", "exclude"}
        pools = tuple(self.pools) if self.pools else None
        exclude = None if self.exclude is None else tuple(self.exclude)
        return Wanted(launch=launch, pools=pools, exclude=exclude, **self.model_dump(include=names))


class Submission(Wish):
    """``POST /workloads``."""

    launch: Launch
    id: WorkloadName | None = None
    notebook: Annotated[str, StringConstraints(max_length=4096)] | None = None
    kernel_name: Line | None = None
    timeout_s: Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)] | None = None
    retries: Annotated[int, Field(ge=0, le=MOST)] | None = None
    retry_after_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None
    notify: Annotated[list[Told], Field(max_length=16)] | None = None
    after: Annotated[list[WorkloadName], Field(max_length=MOST_AWAITED)] = []
    after_any: Annotated[list[WorkloadName], Field(max_length=MOST_AWAITED)] = []


class Amendment(Strict):
    """``PATCH /workloads/{id}``: what is to be different of what it asks for. Whatever is left out stays."""

    allocation: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpu_type: Line | None = None
    min_runtime_s: Seconds | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    cpus: Annotated[int, Field(ge=0, le=4096)] | None = None
    memory_bytes: Annotated[int, Field(ge=0, le=MAX_SIZE)] | None = None
    within: Label | None = None
    exclude: Annotated[list[PlainName], Field(max_length=256)] | None = None
    where: Annotated[dict[Label, Label], Field(max_length=16)] | None = None
    pools: Annotated[list[PlainName], Field(min_length=1, max_length=64)] | None = None

    def wanted(self) -> Wanted:
        """For ``amending.amend``."""
        return Wanted(
            {},
            **self.model_dump(exclude={"pools", "exclude"}),
            pools=tuple(self.pools) if self.pools else None,
            exclude=None if self.exclude is None else tuple(self.exclude),
        )


class Question(Wish):
    """``POST /coach``: a wish, and which protections to compare; None: the usual ones."""

    min_runtimes_s: Annotated[list[Seconds], Field(min_length=1, max_length=16)] | None = None


class Resume(Strict):
    """``POST /workloads/{id}/resume``."""

    from_checkpoint: bool = True
    slice_s: Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)] | None = None
    on_cpu: bool = False  # not queued: opened on a CPU node, until it has GPUs again


class Restoring(Strict):
    """``POST /workloads/{id}/restore``: which checkpoint; without it the last one."""

    checkpoint: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None


class Extension(Strict):
    """``POST /workloads/{id}/extend``: how long it is to be protected from now on."""

    min_runtime_s: Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)]


class Closure(Strict):
    """``POST /maintenance``: which nodes are closed when."""

    nodes: Annotated[list[PlainName], Field(min_length=1, max_length=4096)]
    at_s: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    id: WorkloadName | None = None


class Drain(Strict):
    """``POST /nodes/{name}/drain``: ``within_s`` from now it has to be empty; None: whenever protections have ended."""

    within_s: Seconds | None = None
    force: bool = False


class Nothing(Strict):
    """A body without fields."""


class Pruning(Strict):
    """``POST /workloads/{id}/checkpoints/prune``: how many of the newest stay, and (seconds; 0: any) how old they may be."""

    keep: int = Field(2, ge=1, le=1000)
    keep_s: float = Field(0.0, ge=0, allow_inf_nan=False)


class Reports(Strict):
    """``POST /agents/{node}/reports`` and ``POST /pods/{pod}/reports``; each report is checked by ``gpufair.wire``."""

    boot: Annotated[str, StringConstraints(min_length=1, max_length=MAX_BOOT)]
    reports: Annotated[list[dict[str, Any]], Field(max_length=10_000)]
    # Of the machine, in sentences; agents of older versions say nothing of either.
    problems: Annotated[list[Annotated[str, StringConstraints(max_length=500)]], Field(max_length=100)] | None = None
    now_s: float | None = Field(None, ge=0, le=1e13, allow_inf_nan=False)


class JoinPool(Strict):
    """Who asks for the CPU pool: the workload that it runs in, if any."""

    workload: WorkloadName | None = None


class Login(Strict):
    """``POST /dashboard/login``: one of the two."""

    token: Annotated[str, StringConstraints(max_length=512)] = ""
    code: Annotated[str, StringConstraints(max_length=128)] = ""


class TokenWish(Strict):
    """``POST /tokens``."""

    scope: Literal["read", "act", "manage"] = "read"
    label: Label = ""
    lasts_s: Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)] | None = None
    user: PlainName | None = None
