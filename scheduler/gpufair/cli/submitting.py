"""`gpufair submit` and `gpufair logs`: commands that run unattended, and what they write."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gpufair.cli.arrays import Member, members
from gpufair.cli.awaited import awaited
from gpufair.cli.exits import FAILED, CommandError, Wrong
from gpufair.cli.find import find
from gpufair.cli.notebook_run import NOTEBOOK, NotebookRun
from gpufair.cli.options import (
    AsJson,
    StateDir,
    WorkloadId,
    bytes_of,
    client,
    complete_allocation,
    complete_pool,
    complete_profile,
    seconds_of,
    usual,
)
from gpufair.cli.output import emit_json, line
from gpufair.cli.words import clean, plural, what
from gpufair.client.notebooks import launch
from gpufair.wire import NOTIFY

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Workload

_AT_ONCE = 8  # submissions under way
_POLL_S, _SLOW_POLL_S = 0.3, 2.0
_SHOWN = 5


def submit(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="What to run, after `--`; or a notebook, and the file for its output."),
    ],
    name: Annotated[str | None, typer.Option("--name", help="What to call it; by default the program.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="What to begin with.", autocompletion=complete_profile)
    ] = None,
    allocation: Annotated[
        str | None, typer.Option("--allocation", help="Who pays.", autocompletion=complete_allocation)
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs on each node; 1 without a profile.")] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="On how many nodes at once; it is started on each.")
    ] = None,
    gpu_type: Annotated[str | None, typer.Option("--gpu-type", help="Only GPUs of this type.")] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME", help="Only in this cluster; may be repeated, the first is tried first.", autocompletion=complete_pool),
    ] = None,
    cpus: Annotated[int | None, typer.Option("--cpus", min=0, help="CPUs that are kept for it on each node.")] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory that is kept for it on each node, like 16GiB; above that it is ended."),
    ] = None,
    min_runtime: Annotated[
        str | None,
        typer.Option(
            "--min-runtime",
            metavar="DURATION",
            help="For how long it is not preempted; 1h without a profile. 0s: unallocated, free of charge.",
        ),
    ] = None,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="DURATION", help="How long it will run, for warnings.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", help="After so much running time, waits not counted, it is told to leave and has timed out."
        ),
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", min=0, max=100, help="How often it is started again when it fails, later each time.")
    ] = None,
    retry_after: Annotated[
        str | None,
        typer.Option("--retry-after", metavar="DURATION", help="The first pause, 30s by default; it doubles, up to 10 min."),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            "--notify", metavar="WORD[,WORD]", help=f"Tell me, as the service is set up to: {', '.join(NOTIFY)}."
        ),
    ] = None,
    resumable: Annotated[
        bool,
        typer.Option("--resumable", help="It saves its state by itself when told to leave, and goes on from there."),
    ] = False,
    priority: Annotated[int | None, typer.Option("--priority", help="Within its allocation only.")] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            "--array", metavar="NAME=VALUES", help="One run for each value, as lr=0.1,0.01 or seed=0-9; {lr} stands for it."
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after", metavar="ID[,ID]", help="Start only when these have ended well; a name means a whole array of it."
        ),
    ] = None,
    after_any: Annotated[
        list[str] | None, typer.Option("--after-any", metavar="ID[,ID]", help="Start only when these have ended, well or not.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable for it; without a value, as it is here."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME VALUE", help="A parameter of the notebook; NAME=VALUE will do as well."),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", help="Of the notebook; by default the one it names.")] = None,
    folder: Annotated[Path | None, typer.Option("--cwd", help="Where it runs; by default here.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what it writes until it ends.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Run a program or a notebook when its turn comes: queued, protected for its minimum runtime, preempted, resumed.

    A notebook goes on after its last finished cell. Before a program has to leave it gets SIGTERM, with the reason and
    the deadline in the file $GPUFAIR_NOTICE_FILE and as a line on the descriptor $GPUFAIR_NOTICE_FD.
    """
    gpus, span_s = usual(profile, gpus, min_runtime)
    wish: dict[str, Any] = {
        "profile": profile,
        "allocation": allocation,
        "gpus": gpus,
        "nodes": nodes,
        "gpu_type": gpu_type,
        "pools": pool,
        "cpus": cpus,
        "memory_bytes": None if memory is None else bytes_of(memory, "--memory"),
        "min_runtime_s": span_s,
        "expected_s": None if expected is None else seconds_of(expected, "--expected"),
        "timeout_s": None if timeout is None else seconds_of(timeout, "--timeout"),
        "retries": retries,
        "retry_after_s": None if retry_after is None else seconds_of(retry_after, "--retry-after"),
        "notify": _chosen(notify or []),
        "resumable": resumable or command[0].endswith(NOTEBOOK),
        "priority": priority,
        "kind": "batch",
    }
    variables = _variables(env or [])
    where = str((folder or Path.cwd()).absolute())
    base = name or _name_of(command)
    runs = members(array or [])
    if follow and len(runs) > 1:
        raise Wrong("--follow shows one run, and --array makes several; leave one of them out")

    what_runs = NotebookRun(command, parameter or [], kernel or "") if command[0].endswith(NOTEBOOK) else None
    if what_runs is None and (parameter or kernel):
        raise Wrong("--parameter and --kernel belong to a notebook; a program takes its own arguments after `--`")
    if what_runs is not None and array:
        what_runs.require_distinct_outputs()

    def one(service: Client, run: Member) -> Workload:
        # With an id of its own a submission whose answer was lost is the same one when it is sent again.
        workload, env = uuid.uuid4().hex, variables | (run.environment() if array else {})
        label = run.label(base) if array else base
        if what_runs is not None:
            with what_runs.prepared(run, workload) as job:
                return service.submit(launch(job, where, env), id=workload, name=label, **wish)
        argv = [run.fill(part) for part in command] if array else command
        return service.submit({"type": "command", "argv": argv, "cwd": where, "env": env}, id=workload, name=label, **wish)

    with client(state_dir) as service:
        wish |= awaited(service, after or [], after_any or [])
        done = _all(runs, lambda run: one(service, run))
        if what_runs is not None and (unexpected := what_runs.unexpected(runs[0])):
            told = f"the notebook's parameters do not include {', '.join(unexpected)}"
            typer.echo(f"Take care: {clean(told, 1000)}.", err=True)
        if not follow:
            _tell(done, as_json)
            return
        line(_said(done[0]))
        _follow(service, done[0], rank=0, after=0)


def logs(
    workload: WorkloadId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, metavar="LINES", help="Only so many lines of what is there.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=0, help="Of which of its nodes, counted from 0.")] = 0,
    state_dir: StateDir = None,
) -> None:
    """Show what a command wrote, over all of its starts."""
    with client(state_dir) as service:
        found = find(service, workload)
        if rank >= found.nodes:
            raise Wrong(f"--rank {rank}: {clean(found.label)} has {plural(found.nodes, 'node')}, counted from 0")
        after = 0 if tail is None else _last_lines(service, found.id, rank, tail)
        if follow:
            _follow(service, found, rank, after)
        else:
            _copy(service, found.id, rank, after)


def _chosen(given: list[str]) -> list[str] | None:
    words = [word.strip() for part in given for word in part.split(",")]
    for word in words:
        if word not in NOTIFY:
            raise Wrong(f"--notify {word}: nothing is told by that name; there are {', '.join(NOTIFY)}")
    return words or None


class Submit(TyperCommand):
    """Takes `-p NAME VALUE`, as papermill does, beside `-p NAME=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the two words of each parameter; what comes after `--` is the program's."""
        joined, rest = list[str](), iter(args)
        for word in rest:
            joined.append(word)
            if word == "--":
                break
            if word in ("-p", "--parameter"):
                name = next(rest, "")
                joined.append(name if "=" in name else f"{name}={next(rest, '')}")
        return super().parse_args(ctx, [*joined, *rest])


class _Failed(CommandError):
    exit_code = FAILED


def _all(runs: Sequence[Member], submit_one: Callable[[Member], Workload]) -> list[Workload]:
    if len(runs) == 1:
        return [submit_one(runs[0])]
    first = submit_one(runs[0])  # what is wrong with one is wrong with all
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [first, *pool.map(submit_one, runs[1:])]


def _tell(done: Sequence[Workload], as_json: bool) -> None:
    if as_json:
        emit_json(done[0] if len(done) == 1 else {"workloads": done})
        return
    for one in done[:_SHOWN]:
        line(_said(one))
    if len(done) > _SHOWN:
        line(f"… {plural(len(done), 'run')} in all; `gpufair queue` lists those that wait")
    else:
        line(f"`gpufair logs {done[0].id[:8]} -f` shows what it writes, `gpufair why {done[0].id[:8]}` how it stands")
    for warning in done[0].warnings:
        line(f"Take care: {clean(warning, 1000)}.")


def _said(one: Workload) -> str:
    because = f": {clean(one.reason)}" if one.reason and not one.live else ""  # what it was to wait for went wrong
    return f"{clean(one.label)} ({one.id[:8]}) is {what(one)}{because}"


def _name_of(command: Sequence[str]) -> str:
    """The script of an interpreter, or the program."""
    parts = [part for part in command if not part.startswith("-")]
    interpreter = Path(parts[0]).name.startswith(("python", "torchrun", "bash", "sh")) if parts else False
    script = interpreter and len(parts) > 1 and command[command.index(parts[1]) - 1] != "-c"
    return Path(parts[1] if script else parts[0]).name if parts else "command"


def _variables(asked: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in asked:
        name, equals, value = one.partition("=")
        if not equals:
            if name not in os.environ:
                raise Wrong(f"--env {name}: there is no such variable here; write {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


# -- logs ---------------------------------------------------------------------------------------------------------


def _copy(service: Client, workload: str, rank: int, after: int) -> int:
    """Write what there is from ``after`` on; where it ends."""
    while True:
        page = service.log(workload, after, rank=rank)
        sys.stdout.write(page.text)
        sys.stdout.flush()
        if page.after == after or page.after >= page.size_bytes:
            return page.after
        after = page.after


def _follow(service: Client, workload: Workload, rank: int, after: int) -> None:
    """Write what comes until it has ended; its state, where it changes, to standard error."""
    seen, pause = "", _POLL_S
    while True:
        now = service.workload(workload.id)
        if (state := what(now)) != seen:
            seen = state
            because = f": {clean(now.reason)}" if now.reason else ""
            typer.echo(f"gpufair: {clean(now.label)} is {state}{because}", err=True)
        before, after = after, _copy(service, workload.id, rank, after)
        if not now.live:
            if now.outcome != "completed":
                raise _Failed(f"{clean(now.label)} has {now.outcome or 'ended'}: {clean(now.reason)}")
            return
        pause = _POLL_S if after > before else min(pause * 1.3, _SLOW_POLL_S)
        time.sleep(pause)


def _last_lines(service: Client, workload: str, rank: int, lines: int) -> int:
    """Where the last so many lines begin, in bytes; found from the end."""
    page = service.log(workload, -1, rank=rank)
    size, reach = page.size_bytes, 1 << 14
    while True:
        reach = min(reach, size)
        page = service.log(workload, -reach, rank=rank) if reach else page
        data = page.text.encode()
        ends = [at for at, byte in enumerate(data[:-1]) if byte == 0x0A]
        if len(ends) >= lines:
            return page.after - len(data[ends[-lines] + 1 :])
        if reach >= size or reach >= 1 << 20:
            return size - reach
        reach *= 4
