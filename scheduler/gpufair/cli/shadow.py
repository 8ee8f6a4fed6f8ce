"""`gpufair shadow`: this week's real submissions under other policies, beside the cluster that runs them; nothing is touched."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import Setting, StateDir, client, seconds_of, settings_of
from gpufair.cli.progress import bars
from gpufair.cli.results import check_writable, whole, write_text
from gpufair.cli.simulating import Jobs, Policies, title
from gpufair.cli.words import clean, clock, plural, span
from gpufair.core.errors import GpufairError

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.core.model import Allocation
    from gpufair.sim import Cluster
    from gpufair.sim.shadow import Mirror
    from gpufair.sim.traces import Trace

COMMAND_S: Final = 300.0  # that a command may take
MOST_BYTES: Final = 1 << 30
LIVE: Final = "the service"


def shadow(
    report: Annotated[
        Path, typer.Option("--report", metavar="OUT.html", dir_okay=False, help="The report, rewritten each time.")
    ],
    sacct: Annotated[
        str | None,
        typer.Option(
            "--sacct",
            metavar="FILE|-",
            help="Output of sacct --parsable2, read again each time; - is standard input, read once.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="COMMAND",
            help="Run this each time for such output, like 'sacct -a -X --parsable2 -S now-2days -o …'.",
        ),
    ] = None,
    from_live: Annotated[bool, typer.Option("--from-live", help="The submissions of the gpufair service.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NODESxGPUS", help="Like 128x8; default with --from-live: the service's nodes."
        ),
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            "--budgets",
            metavar="FILE",
            dir_okay=False,
            help="Budget tree; default: the service's, or drawn from the submissions.",
        ),
    ] = None,
    policy: Policies = None,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often.")] = "1h",
    once: Annotated[bool, typer.Option("--once", help="Do it once and end, as from cron.")] = False,
    days: Annotated[
        float, typer.Option("--days", min=0.04, max=35.0, help="How many of the last days are played.")
    ] = 7.0,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            dir_okay=False,
            help="Where what was seen is kept; default: beside the report. It is a trace itself.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", dir_okay=False, help="Write the figures as JSON, too.")
    ] = None,
    setting: Setting = None,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn where nothing was recorded.")] = 0,
    jobs: Jobs = 1,
    state_dir: StateDir = None,
) -> None:
    """Mirror what users submit to an existing Slurm, or to the service, into the simulator, and compare policies on it.

    Only reads. The report is rewritten each time over the submissions of the last days; what was seen is kept, so that it
    goes on after a restart, and sacct need only tell of the last hours.
    """
    from gpufair.core.model import Policy  # noqa: PLC0415  # the simulator is not needed by other commands
    from gpufair.sim import CONTENDERS  # noqa: PLC0415  # as above
    from gpufair.sim.policies.registry import contender  # noqa: PLC0415  # as above

    given = [name for name, value in (("--sacct", sacct), ("--run", command), ("--from-live", from_live)) if value]
    if len(given) != 1:
        raise typer.BadParameter(
            f"give one of --sacct, --run and --from-live, not {' and '.join(given) or 'none'}", param_hint="--sacct"
        )
    if cluster is None and not from_live:
        raise typer.BadParameter("which cluster? Give --cluster, like 128x8", param_hint="--cluster")
    pause_s = seconds_of(every, "--every")
    if pause_s < 1 and not once:
        raise typer.BadParameter(f"{every} is too often; use 1s or more", param_hint="--every")
    policies = policy or list(CONTENDERS)
    for name in policies:
        contender(name)
    check_writable({"--report": report, "--json": json_file, "--state": state}, (sacct, budgets), printed=())
    work = Work(
        report=report,
        state=state if state is not None else report.with_suffix(".jobs.csv.gz"),
        json_file=json_file,
        cluster=cluster,
        budgets=budgets,
        policies=policies,
        options=settings_of(setting or (), Policy()),
        days=days,
        seed=seed,
        jobs=jobs,
    )
    read = _source(sacct, command, days, state_dir)
    _loop(work, read, pause_s, once=once or sacct == "-")


@dataclass(frozen=True)
class Seen:
    """What a source tells: submissions, and of the service its nodes and budgets too."""

    trace: Trace
    cluster: Cluster | None = None
    allocations: tuple[Allocation, ...] | None = None


@dataclass(frozen=True)
class Work:
    """What is done each time."""

    report: Path
    state: Path
    json_file: Path | None
    cluster: str | None
    budgets: Path | None
    policies: list[str]
    options: Any
    days: float
    seed: int
    jobs: int

    def once(self, mirror: Mirror, seen: Seen) -> str:
        """Take in what was seen and write the report. Returns what to say about it."""
        from gpufair.core.units import DAY, Millis  # noqa: PLC0415  # as above
        from gpufair.service.settings.budgets import read_budgets  # noqa: PLC0415  # as above
        from gpufair.sim import Cluster, compare, sampling, shape, write_report  # noqa: PLC0415  # as above

        changed = mirror.take(seen.trace)
        mirror.save(self.state)
        recent = mirror.recent(Millis(round(self.days * DAY)), name=f"the last {self.days:g} days")
        if recent is None:
            raise CommandError("there is no submission of the last days to play")
        cluster = Cluster.parse(self.cluster) if self.cluster is not None else seen.cluster
        if cluster is None or not cluster.gpus:
            raise CommandError("the service has no nodes with GPUs; give --cluster, like 128x8")
        tree = read_budgets(self.budgets).allocations if self.budgets is not None else seen.allocations
        scenario = shape(
            recent,
            cluster,
            budgets=tree,
            window=self.options.window,
            max_min_runtime=self.options.max_min_runtime,
            seed=self.seed,
            oversize="skip",
            warm_up=Millis(0),
        )
        begun = time.monotonic()
        with bars(dict.fromkeys(self.policies, 1.0)) as advance:
            results = compare(
                scenario, self.policies, self.options, sample_every=sampling(scenario), jobs=self.jobs, progress=advance
            )
        with whole(self.report) as fresh:
            write_report([one.story for one in results.values()], fresh, f"Shadow: {title(scenario)}")
        if self.json_file is not None:
            figures = {name: one.as_json() for name, one in results.items()}
            write_text(self.json_file, json.dumps({"trace": scenario.name, "policies": figures}, indent=2) + "\n")
        return (
            f"{changed:,} of {plural(len(mirror.jobs), 'job')} new or changed; {len(recent.rows):,} played in "
            f"{span(time.monotonic() - begun)}: {self.report}"
        )


def _loop(work: Work, read: Callable[[], Seen], pause_s: float, *, once: bool) -> None:
    from gpufair.sim.shadow import Mirror  # noqa: PLC0415  # as above

    mirror = Mirror.load(work.state)
    first = True
    while True:
        begun = time.time()
        try:
            line = work.once(mirror, read())
        except GpufairError as err:
            if first or once:
                raise  # whoever starts it sees at once what is wrong
            line = f"not this time: {err}"
        typer.echo(f"{clock(begun, begun)} {clean(line, 1000)}")
        sys.stdout.flush()
        if once:
            return
        first = False
        time.sleep(max(1.0, pause_s - (time.time() - begun)))


def _source(sacct: str | None, command: str | None, days: float, state_dir: Path | None) -> Callable[[], Seen]:
    if sacct == "-":
        return lambda: _read_text(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")
    if sacct is not None:
        return lambda: _read_file(Path(sacct))
    if command is not None:
        return lambda: _read_text(_output_of(command), command)
    return lambda: _read_live(days, state_dir)


def _read_file(path: Path) -> Seen:
    from gpufair.sim import read_trace  # noqa: PLC0415  # as above

    return Seen(read_trace(path, "sacct"))


def _read_text(data: bytes, name: str) -> Seen:
    if len(data) > MOST_BYTES:
        raise CommandError(f"{name} gave more than 1 GiB; ask sacct for fewer days (-S)")
    with tempfile.TemporaryDirectory(prefix="gpufair-shadow-") as folder:
        path = Path(folder) / "sacct"
        path.write_bytes(data)
        return _read_file(path)


def _output_of(command: str) -> bytes:
    """What a command prints, which is not a shell's: no variables, no pipes."""
    try:
        words = shlex.split(command)
    except ValueError as err:
        raise CommandError(f"{command!r} is no command: {err}") from err
    try:
        done = subprocess.run(words, capture_output=True, timeout=COMMAND_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, ValueError, IndexError) as err:
        why = getattr(err, "strerror", None) or err
        raise CommandError(f"{command!r} cannot be run: {why}; give a command that prints what sacct prints") from err
    except subprocess.TimeoutExpired as err:
        raise CommandError(f"{command!r} took more than {span(COMMAND_S)}; ask sacct for fewer days (-S)") from err
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandError(
            f"{command!r} ended with {done.returncode}: {clean(said[-1]) if said else 'it said nothing'}"
        )
    return done.stdout


def _read_live(days: float, state_dir: Path | None) -> Seen:
    """The service's own submissions, its nodes and its budgets."""
    from gpufair.core.model import Allocation  # noqa: PLC0415  # as above
    from gpufair.core.units import AllocationPath  # noqa: PLC0415  # as above
    from gpufair.sim import read_trace  # noqa: PLC0415  # as above

    with client(state_dir) as service:
        records = _records(service, days)
        nodes = [(node.gpus, node.gpu_type) for node in service.nodes() if node.gpus]
        tree = tuple(
            Allocation(AllocationPath(one.path), str(one.share), tuple(one.members))
            for one in service.budgets().allocations
        )
    with tempfile.TemporaryDirectory(prefix="gpufair-shadow-") as folder:
        path = Path(folder) / "timeline.json"
        path.write_text(json.dumps({"records": records}), encoding="utf-8")
        trace = read_trace(path, "journal")
    return Seen(trace, _as_cluster(nodes), tree)


# What the importer of journals looks at.
_KINDS: Final = ("Submitted", "Amended", "Start", "Started", "StartFailed", "Released", "Exited", "Cancelled", "NodeLost", "End")


def _records(service: Client, days: float) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    more, last = True, 0
    # A day more: what was submitted before, and still ran then, is known from earlier readings.
    since_s = max(1.0, time.time() - (days + 1) * 86400)
    while more:
        page = service.timeline_page(last, since_s=since_s, kinds=_KINDS)
        records += page["records"]
        more, last = bool(page.get("more")), int(page.get("last") or 0)
    # What runs has run until now, not only until something else happened.
    now_s = service.status().now_s
    return [*records, {"seq": last, "at_s": now_s, "type": "event", "kind": "TimePassed", "cause": "shadow"}]


def _as_cluster(nodes: list[tuple[int, str]]) -> Cluster:
    from gpufair.sim import Cluster  # noqa: PLC0415  # as above
    from gpufair.sim.cluster import Group  # noqa: PLC0415  # as above

    kinds = sorted(set(nodes))
    return Cluster(tuple(Group(nodes.count(kind), *kind) for kind in kinds))
