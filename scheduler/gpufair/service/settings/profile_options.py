"""``[[profile]]`` of the configuration: what a kernelspec or ``--profile`` stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpufair.core.model import Kind, Policy
from gpufair.core.units import HOUR, SECOND, Millis
from gpufair.service.settings.durations import format_duration
from gpufair.service.settings.node_options import MAX_CPUS, MAX_GPUS, MAX_NODES
from gpufair.service.settings.pod_template import PodTemplate, read_pod_template
from gpufair.service.settings.policy_options import OFF, YEAR
from gpufair.service.settings.tables import NAME, Table, shown

# A notebook that computes nothing for so long gives its GPUs back: in a trace of a lab 1 h frees nearly as much as 15 min.
IDLE_RELEASE = HOUR
POD_PROFILE = "pod_profile"  # in a launch: the profile of whose template its pods are made


@dataclass(frozen=True, slots=True)
class Profile:
    """What a kernelspec or ``--profile`` stands for. ``allocation`` "": the user's first open one.

    ``cpus`` and ``memory`` (bytes) are taken on each node; ``within``, ``exclude`` and ``where`` are as in the core's
    ``Shape``. ``priority`` None: by what is asked for (``submission.usual_priority``).
    """

    name: str
    display_name: str
    gpus: int
    nodes: int = 1
    gpu_type: str = ""
    allocation: str = ""
    min_runtime: Millis = Millis(0)
    kind: Kind = Kind.SESSION
    grace: Millis | None = None
    priority: int | None = None
    expected: Millis | None = None  # how long it needs its GPUs in all
    idle_release: Millis | None = IDLE_RELEASE  # of a session without a running cell; None: never
    movable: bool = False  # may be moved off a node that is to be emptied, though it is protected
    cpus: int = 0
    memory: int = 0
    within: str = ""
    exclude: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    pools: tuple[str, ...] = ()  # that it accepts, in order; none: all that could hold it
    pod: PodTemplate | None = None  # where a Kubernetes cluster runs it


DEFAULT_PROFILES = (
    Profile("1gpu", "Python 3 (1 GPU)", gpus=1, min_runtime=HOUR),
    Profile("cpu", "Python 3 (CPU, gpufair)", gpus=0),
)


def read_profile(table: Table, policy: Policy, folder: Path) -> Profile:
    """One table as a profile. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    name = table.ident("name")
    gpus = table.integer("gpus", 1, 0, MAX_GPUS)
    min_runtime = table.duration("min_runtime", Millis(0), Millis(0), YEAR)
    if min_runtime > policy.max_min_runtime:
        cap = format_duration(policy.max_min_runtime)
        table.fail(
            f"min_runtime of {format_duration(min_runtime)} is above max_min_runtime ({cap}); ask for at most {cap}",
            "min_runtime",
        )
    pod = read_pod_template(table, "pod", folder) if table.has("pod") else None
    asked = pod or PodTemplate()
    profile = Profile(
        name=name,
        display_name=table.text("display_name", "") or name,
        gpus=gpus,
        nodes=table.integer("nodes", 1, 1, MAX_NODES),
        gpu_type=table.text("gpu_type", ""),
        allocation=table.text("allocation", "", longest=512),
        min_runtime=min_runtime,
        kind=Kind(table.choice("kind", Kind.SESSION.value, [kind.value for kind in Kind])),
        grace=table.duration("grace", SECOND, SECOND, HOUR) if table.has("grace") else None,
        priority=table.integer("priority", 0, -1000, 1000) if table.has("priority") else None,
        expected=table.duration("expected", SECOND, SECOND, YEAR) if table.has("expected") else None,
        idle_release=_idle_release(table),
        movable=table.boolean("movable", False),
        cpus=table.integer("cpus", asked.cpus, 0, MAX_CPUS),
        memory=table.size("memory", asked.memory),
        within=table.text("within", ""),
        exclude=_excluded(table),
        where={**asked.node_labels, **table.labels("where")},
        pools=table.strings("pools"),
        pod=pod,
    )
    table.finish()
    return profile


def template_of(launch: Mapping[str, object], profiles: Iterable[Profile]) -> PodTemplate:
    """From which the pods of a workload are made; one that says nothing where its profile has none, or is gone."""
    found = (one.pod for one in profiles if one.name == launch.get(POD_PROFILE))
    return next(found, None) or PodTemplate()


def _idle_release(table: Table) -> Millis | None:
    if table.raw("idle_release") == OFF:
        return None
    return table.duration("idle_release", IDLE_RELEASE, Millis(0), YEAR) or None


def _excluded(table: Table) -> tuple[str, ...]:
    names = table.strings("exclude")
    for name in names:
        if NAME.fullmatch(name) is None:
            table.fail(f"exclude: {shown(name)} is no name of a node; leave it out or correct it", "exclude")
    return names
