"""Options and arguments that several commands share, and their completion from the live service."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpufair.core.errors import GpufairError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpufair.client import Client
    from gpufair.core.model import Policy

Found = TypeVar("Found")
_USUAL_S = 3600.0
_COMPLETE_S = 1.0  # a shell that hangs on Tab is worse than one that knows nothing


def client(folder: Path | None) -> Client:
    """The service's client for one command."""
    from gpufair.client import Client  # noqa: PLC0415  # brings the HTTP stack

    return Client(state_dir=folder)


def seconds_of(duration: str, option: str) -> float:
    """A span of time as it is written everywhere, in seconds.

    Raises:
        typer.BadParameter: It is none; ``option`` is what the error calls it.
    """
    from gpufair.service.settings.durations import parse_duration  # noqa: PLC0415  # it is light, but only this needs it

    try:
        return parse_duration(duration) / 1000
    except ValueError as err:
        raise typer.BadParameter(str(err), param_hint=option) from err


def emptied_within_s(deadline: str | None, *, force: bool) -> float | None:
    """Seconds from now in which a drain has to be over; None: when protections end.

    Raises: typer.BadParameter: It is no duration, or is missing where protections are to be cut.
    """
    if force and deadline is None:
        raise typer.BadParameter("say by when, like --deadline 2h, or --deadline 0s for at once", param_hint="--force")
    return None if deadline is None else seconds_of(deadline, "--deadline")


def instant_of(text: str, option: str, now: float) -> float:
    """A moment in local time, like 08:00 (the next time that a clock shows this) or 2027-01-31T08:00, in Unix seconds.

    Raises:
        typer.BadParameter: It is none; ``option`` is what the error calls it.
    """
    today = dt.datetime.fromtimestamp(now).astimezone()
    try:
        if "T" not in text and "-" not in text:
            when = dt.datetime.combine(today.date(), dt.time.fromisoformat(text)).astimezone()
            return (when if when > today else when + dt.timedelta(days=1)).timestamp()
        return dt.datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as err:
        raise typer.BadParameter(f"{text!r} is no time; write 08:00 or 2027-01-31T08:00", param_hint=option) from err


def usual(profile: str | None, gpus: int | None, min_runtime: str | None) -> tuple[int | None, float | None]:
    """GPUs and seconds of protection to ask for: without a profile 1 GPU for an hour, where nothing else was said.
    Work without GPUs is not preempted, and so needs no protection."""
    span_s = None if min_runtime is None else seconds_of(min_runtime, "--min-runtime")
    if profile is not None:
        return gpus, span_s
    gpus = 1 if gpus is None else gpus
    return gpus, span_s if span_s is not None else _USUAL_S if gpus else 0.0


def bytes_of(size: str, option: str) -> int:
    """An amount of memory as it is written everywhere, in bytes.

    Raises:
        typer.BadParameter: It is none; ``option`` is what the error calls it.
    """
    from gpufair.service.settings.sizes import parse_size  # noqa: PLC0415  # as above

    try:
        return parse_size(size)
    except ValueError as err:
        raise typer.BadParameter(str(err), param_hint=option) from err


def settings_of(settings: Iterable[str], policy: Policy, option: str = "--set") -> Policy:
    """A policy with some options set as ``--set``, or another ``option``, says.

    Raises:
        ConfigError: There is no such option, or its value is wrong.
    """
    from gpufair.service.settings.policy_options import changed  # noqa: PLC0415  # only what plays policies needs it

    return changed(policy, settings, option)


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Options of the policy, with their defaults."""
    from gpufair.service.settings.policy_options import options  # noqa: PLC0415  # as above

    return [(f"{one.field}=", f"default {one.default}") for one in options() if one.field.startswith(incomplete)]


def _ask(ctx: typer.Context, ask: Callable[[Client], Iterable[Found]]) -> list[Found]:
    """What the live service can complete; nothing if it cannot be asked."""
    from gpufair.client import Client, Patience  # noqa: PLC0415  # as above

    patience = Patience(timeout_s=_COMPLETE_S, tries=1, total_s=_COMPLETE_S)
    with suppress(GpufairError), Client(state_dir=ctx.params.get("state_dir"), patience=patience) as service:
        return list(ask(service))
    return []


def complete_workload(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of workloads that are not over."""
    found: list[tuple[str, str]] = []
    for workload in _ask(ctx, lambda service: [w for w in service.workloads() if w.live]):
        about = f"{workload.label}: {workload.state}, {workload.user}"
        if workload.id.startswith(incomplete):
            found.append((workload.id, about))
        elif workload.name.startswith(incomplete):
            found.append((workload.name, about))
    return found


def complete_node(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of nodes."""
    nodes = _ask(ctx, lambda service: service.nodes())
    return [(n.name, f"{n.state}, {n.gpus} GPUs") for n in nodes if n.name.startswith(incomplete)]


def complete_plan(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of planned maintenances."""
    plans = _ask(ctx, lambda service: service.maintenance())
    return [(p.id, ", ".join(p.nodes)) for p in plans if p.id.startswith(incomplete)]


def complete_announcement(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Numbers of announcements."""
    found = _ask(ctx, lambda service: service.announcements(every=True).announcements)
    live = [one for one in found if one.state in {"coming", "current"}]
    return [(str(one.id), one.text) for one in live if str(one.id).startswith(incomplete)]


def complete_pool(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of pools."""
    found = _ask(ctx, lambda service: service.pools())
    return [(one.name, f"{one.free_gpus} of {one.gpus} GPUs free") for one in found if one.name.startswith(incomplete)]


def complete_profile(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of profiles."""
    profiles = _ask(ctx, lambda service: service.profiles())
    return [(p.name, p.display_name) for p in profiles if p.name.startswith(incomplete)]


def complete_allocation(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Paths of the leaves of the budget tree."""
    leaves = [a for a in _ask(ctx, lambda service: service.budgets().allocations) if a.leaf]
    return [(a.path, f"{a.entitlement * 100:.1f} %") for a in leaves if a.path.startswith(incomplete)]


def complete_workload_or_allocation(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """What `why` can explain."""
    return complete_workload(ctx, incomplete) + complete_allocation(ctx, incomplete)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="FOLDER",
        file_okay=False,
        help="State folder of the service; beats $GPUFAIR_URL and $GPUFAIR_STATE_DIR.",
    ),
]
WorkloadId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id, its first 4 characters or more, or a name.", autocompletion=complete_workload
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Any option of the policy, like take_limit=3 or half_life=3d; may be repeated.",
        autocompletion=complete_setting,
    ),
]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.", autocompletion=complete_node)]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="DURATION", help="By when it has to be empty, like 2h.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Cut protections that last beyond the deadline. Their owners see why.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when it is done.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, like 30s, 15m or 8h.")]
