"""What `simulate`, `compare`, `sweep` and `shadow` are asked to play: options that they share, and the scenario made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import Setting, settings_of
from gpufair.cli.progress import progress

if TYPE_CHECKING:
    from gpufair.core.model import Allocation, Policy
    from gpufair.core.units import Millis
    from gpufair.sim import Assumptions, Cluster, Scenario
    from gpufair.sim.traces import Trace

WORLD: Final = "world:"
_TRACE, _CLUSTER, _DRAWN = "Trace or world", "Cluster and budgets", "What is drawn"
_POLICY = "Policy"


def complete_world(incomplete: str) -> list[tuple[str, str]]:
    """Names of constructed worlds. (Files are completed by the shell.)"""
    from gpufair.sim.worlds import WORLDS  # noqa: PLC0415  # the simulator is not needed by other commands

    found = [(f"{WORLD}{world.name}", world.about) for world in WORLDS.values()]
    return [one for one in found if one[0].startswith(incomplete)]


def complete_format(incomplete: str) -> list[tuple[str, str]]:
    """Names of formats of traces."""
    from gpufair.sim.traces import FORMATS  # noqa: PLC0415  # as above

    return [(name, about) for name, (_, about) in FORMATS.items() if name.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[tuple[str, str]]:
    """Names of policies."""
    from gpufair.sim import CONTENDERS  # noqa: PLC0415  # as above

    return [(one.name, one.about) for one in CONTENDERS.values() if one.name.startswith(incomplete)]


@dataclass(frozen=True)
class Asked:
    """The options by which a scenario is made, as they were given."""

    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|world:NAME",
            help="A file of past jobs (CSV, sacct, SWF, Philly, Helios, PAI, a service's journal; .gz too), or a "
            "constructed world, like world:steady.",
            autocompletion=complete_world,
        ),
    ]
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NODESxGPUS", help="Like 128x8, or 96x8:a100,32x4:l40.", rich_help_panel=_CLUSTER
        ),
    ]
    budgets: Annotated[
        Path | None,
        typer.Option(
            "--budgets",
            metavar="FILE",
            dir_okay=False,
            help="Budget tree; default: drawn from the trace.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None
    demand: Annotated[
        float | None,
        typer.Option(
            "--demand",
            metavar="X",
            help="GPU time asked for per GPU time there is, like 2.5; default: as recorded.",
            rich_help_panel=_TRACE,
        ),
    ] = None
    days: Annotated[
        float | None, typer.Option("--days", metavar="N", help="How many days are played.", rich_help_panel=_TRACE)
    ] = None
    skip_days: Annotated[
        float,
        typer.Option(
            "--skip-days", metavar="N", help="Days of the trace that are left out before.", rich_help_panel=_TRACE
        ),
    ] = 0.0
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Of the trace; default: seen by its content.",
            autocompletion=complete_format,
            rich_help_panel=_TRACE,
        ),
    ] = "auto"
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse a trace with bad rows; else they are named, counted and skipped.",
            rich_help_panel=_TRACE,
        ),
    ] = False
    oversize: Annotated[
        str,
        typer.Option(
            "--oversize",
            metavar="refuse|clip|skip",
            help="What to do about jobs that never fit the cluster.",
            rich_help_panel=_TRACE,
        ),
    ] = "refuse"
    closed_loop: Annotated[
        int | None,
        typer.Option(
            "--closed-loop",
            metavar="N",
            help="No user has more unfinished jobs than these; the next ones come later.",
            rich_help_panel=_TRACE,
        ),
    ] = None
    unallocated: Annotated[
        float | None,
        typer.Option(
            "--unallocated",
            metavar="X",
            help="Part of the demand, 0 to 1, that runs unallocated.",
            rich_help_panel=_DRAWN,
        ),
    ] = None
    debug_share: Annotated[
        float | None,
        typer.Option(
            "--debug-share",
            metavar="X",
            help="Part of the short, small jobs that are debug runs.",
            rich_help_panel=_DRAWN,
        ),
    ] = None
    session_share: Annotated[
        float | None,
        typer.Option(
            "--session-share",
            metavar="X",
            help="Part of the long, small jobs that are sessions.",
            rich_help_panel=_DRAWN,
        ),
    ] = None
    assumptions: Annotated[
        Path | None,
        typer.Option(
            "--assumptions",
            metavar="FILE",
            dir_okay=False,
            help="What to assume otherwise than usual.",
            rich_help_panel=_DRAWN,
        ),
    ] = None
    users: Annotated[
        str,
        typer.Option(
            "--users",
            metavar="trace|drawn",
            help="Users as recorded (drawn where none are), or all drawn.",
            rich_help_panel=_DRAWN,
        ),
    ] = "trace"
    levels: Annotated[
        int,
        typer.Option(
            "--levels", min=1, max=2, help="Of a budget tree that is drawn from the trace.", rich_help_panel=_CLUSTER
        ),
    ] = 1
    equal: Annotated[
        bool,
        typer.Option(
            "--equal",
            help="Equal shares in a tree that is drawn; else in proportion to what was used.",
            rich_help_panel=_CLUSTER,
        ),
    ] = False
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.", rich_help_panel=_DRAWN)] = 0
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="DURATION", help="Lookback window; default: 7d.", rich_help_panel=_POLICY),
    ] = None
    max_min_runtime: Annotated[
        str | None,
        typer.Option(
            "--max-min-runtime", metavar="DURATION", help="Longest protection; default: 8h.", rich_help_panel=_POLICY
        ),
    ] = None
    setting: Setting = None
    warm_up: Annotated[
        str | None,
        typer.Option(
            "--warm-up",
            metavar="DURATION",
            help="Beginning left out of the figures; default: a window, if twice as much is played.",
            rich_help_panel=_TRACE,
        ),
    ] = None

    @property
    def options(self) -> Policy:
        """The options of the policy.

        Raises:
            ConfigError: One is not known, or its value is wrong.
        """
        from gpufair.core.model import Policy  # noqa: PLC0415  # the simulator is not needed by other commands

        shorts = (("window", self.window), ("max_min_runtime", self.max_min_runtime))
        return settings_of(
            [*(f"{name}={value}" for name, value in shorts if value is not None), *(self.setting or ())], Policy()
        )

    @property
    def files(self) -> tuple[Path | str | None, ...]:
        """What is read to make it, as far as it is a file."""
        return self.trace, self.budgets, self.assumptions

    def source(self) -> Source:
        """What scenarios are made of, read and checked.

        Raises:
            GpufairError: A file can't be read, or something in it or among the options makes no sense.
        """
        from gpufair.service.settings.budgets import read_budgets  # noqa: PLC0415  # as above
        from gpufair.sim import Cluster, read_assumptions, read_trace  # noqa: PLC0415  # as above
        from gpufair.sim.assumptions import usual  # noqa: PLC0415  # as above
        from gpufair.sim.worlds import world  # noqa: PLC0415  # as above

        cluster = Cluster.parse(self.cluster)
        assumptions = usual() if self.assumptions is None else read_assumptions(self.assumptions)
        budgets = None if self.budgets is None else read_budgets(self.budgets).allocations
        for option, value, known in (
            ("--oversize", self.oversize, ("refuse", "clip", "skip")),
            ("--users", self.users, ("trace", "drawn")),
        ):
            if value not in known:
                raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}", param_hint=option)
        warm_up = None if self.warm_up is None else _millis(self.warm_up, "--warm-up")
        trace = None
        if self.trace.startswith(WORLD):
            world(self.trace)
            self._refuse_for_worlds()
        else:
            with progress("reading", 1.0) as advance:
                trace = read_trace(
                    self.trace, self.form, strict=self.strict, progress=lambda done, size: advance(done / max(1, size))
                )
        return Source(self, cluster, assumptions, budgets, trace, warm_up, self.options)

    def _refuse_for_worlds(self) -> None:
        given = {
            "--budgets": self.budgets, "--skip-days": self.skip_days, "--format": self.form != "auto", "--strict": self.strict,
            "--debug-share": self.debug_share, "--session-share": self.session_share, "--oversize": self.oversize != "refuse",
            "--users": self.users != "trace", "--levels": self.levels != 1, "--equal": self.equal,
        }  # fmt: skip
        if wrong := [name for name, value in given.items() if value]:
            raise CommandError(f"{', '.join(wrong)} is for traces; a constructed world has its own: leave it out")


@dataclass(frozen=True)
class Source:
    """Makes scenarios: of a trace or a world, with a seed and what a sweep varies."""

    asked: Asked
    cluster: Cluster
    assumptions: Assumptions
    budgets: tuple[Allocation, ...] | None
    trace: Trace | None
    warm_up: Millis | None
    options: Policy

    def __call__(
        self,
        *,
        seed: int | None = None,
        demand: float | None = None,
        unallocated: float | None = None,
        closed_loop: int | None = None,
        session_share: float | None = None,
    ) -> Scenario:
        """A scenario. What is not given here is as it was asked for.

        Raises:
            GpufairError: It makes no sense.
        """
        from gpufair.sim import Setting, shape  # noqa: PLC0415  # as above
        from gpufair.sim.worlds import world  # noqa: PLC0415  # as above

        asked = self.asked
        seed = asked.seed if seed is None else seed
        demand = asked.demand if demand is None else demand
        free = asked.unallocated if unallocated is None else unallocated
        sessions = asked.session_share if session_share is None else session_share
        common: dict[str, Any] = {
            "seed": seed,
            "demand": demand,
            "window": self.options.window,
            "max_min_runtime": self.options.max_min_runtime,
            "assumptions": self.assumptions,
            "outstanding": asked.closed_loop if closed_loop is None else closed_loop,
        }
        if self.trace is None:
            days: dict[str, Any] = {} if asked.days is None else {"days": asked.days}
            scenario = world(asked.trace).make(Setting(self.cluster, unallocated_share=free, **days, **common))
        else:
            scenario = shape(
                self.trace,
                self.cluster,
                budgets=self.budgets,
                days=asked.days,
                skip_days=asked.skip_days,
                unallocated_share=free or 0.0,
                debug_share=asked.debug_share,
                session_share=sessions or 0.0,
                oversize=asked.oversize,  # type: ignore[arg-type]  # it was checked, as were the next two
                users=asked.users,  # type: ignore[arg-type]
                levels=asked.levels,  # type: ignore[arg-type]
                equal=asked.equal,
                **common,
            )
        if self.warm_up is None:
            return scenario
        if self.warm_up >= scenario.until - scenario.start:
            raise CommandError(f"a warm-up of {asked.warm_up} leaves nothing of what is played; make it shorter")
        return replace(scenario, warm_up=self.warm_up)


VARIED: Final = ("demand", "unallocated", "closed_loop", "session_share")  # of a scenario, beside options of the policy


def _millis(text: str, option: str) -> Millis:
    from gpufair.service.settings.durations import parse_duration  # noqa: PLC0415  # as above

    try:
        return parse_duration(text)
    except ValueError as err:
        raise typer.BadParameter(str(err), param_hint=option) from err


def with_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``Asked``, in place of its parameter ``asked``."""
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(Asked, include_extras=True)
    shared = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default if one.name not in ("trace", "cluster") else inspect.Parameter.empty,
            annotation=hints[one.name],
        )
        for one in fields(Asked)
    ]
    rest = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own.parameters.values() if one.name != "asked"]
    every = [*shared[:2], *rest, *shared[2:]]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        asked = Asked(**{one.name: given.pop(one.name) for one in fields(Asked)})
        command(asked=asked, **given)

    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in every}
    return run
