"""`gpufair nodes`: the machines, and taking one out of service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpufair.cli.exits import NoSuch, Wrong
from gpufair.cli.options import AsJson, Deadline, Force, NodeName, StateDir, client, emptied_within_s
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import ago, clean, clock, moment, plural

if TYPE_CHECKING:
    from gpufair.client.machines import NodeView, ProtectedView

_LONGEST: Final = 600
_FEW: Final = 3
nodes = typer.Typer(help="Machines: list, cordon, drain, uncordon, remove.", no_args_is_help=True)


@nodes.command("list")
def list_nodes(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the machines with their GPUs."""
    with client(state_dir) as service:
        found = service.nodes()
    if as_json:
        emit_json({"nodes": found})
        return
    now = time.time()
    columns = [
        Column("NODE"),
        Column("STATE"),
        Column("GPUS FREE"),
        Column("TYPE", 1),
        Column("POOL", 3),
        Column("WORKLOADS", 2),
        Column("LANDINGS", 3),
        Column("SEEN", 2),
        Column("PROBLEMS", 1),
    ]
    rows = (
        (
            n.name,
            _state(n),
            _free(n),
            n.gpu_type,
            n.pool,
            ", ".join(workload[:8] for workload in n.workloads),
            ", ".join(f"{one.workload[:8]} by {clock(one.start_by_s, now)}" for one in n.landings),
            f"{ago(n.last_seen_s, now)} ago" if n.last_seen_s is not None else "",
            str(len(n.problems)) if n.problems else "",
        )
        for n in found
    )
    table(columns, rows, "no node has joined yet; `gpufair doctor` says what may be in the way")
    # Below the table: a sentence is too wide for a column, and a cluster may say the same of all of its nodes.
    said: dict[str, list[str]] = {}
    for n in found:
        for text in n.problems:
            said.setdefault(text, []).append(n.name)
    for text, names in said.items():
        line(f"{_few(names)}: {clean(text, _LONGEST)}")


def _few(names: list[str]) -> str:
    shown = ", ".join(clean(name) for name in names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"


@nodes.command("cordon")
def cordon(node: NodeName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let nothing new start on a node; what runs there leaves as its protection ends."""
    with client(state_dir) as service:
        seen = service.cordon(node)
    if as_json:
        emit_json(seen)
        return
    leaving = len(seen.workloads)
    after = f"; {plural(leaving, 'workload')} will leave as protection ends" if leaving else "; it is empty"
    line(f"{clean(seen.name)} is cordoned: nothing new starts there{after}")


@nodes.command("drain")
def drain(
    node: NodeName,
    deadline: Deadline = None,
    force: Force = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Empty a node by a deadline; what is protected beyond it stays, unless forced."""
    within_s = emptied_within_s(deadline, force=force)
    with client(state_dir) as service:
        seen = service.drain(node, within_s=within_s, force=force)
    if as_json:
        emit_json(seen)
        return
    now = time.time()
    line(f"{clean(seen.name)} is being drained: nothing new starts there{_emptied(seen, now)}")
    late = [one for one in seen.protected if _late(seen, one)]
    if late and not force:
        line(
            f"{plural(len(late), 'workload')} protected beyond the deadline: "
            f"{', '.join(f'{one.workload[:8]} until {moment(one.until_s, now)}' for one in late)}. "
            "--force cuts protections"
        )


def _emptied(node: NodeView, now: float) -> str:
    if not node.workloads:
        return "; it is empty"
    when = f"; it is empty by {moment(node.empty_by_s, now)}" if node.empty_by_s is not None else ""
    return f"; {plural(len(node.workloads), 'workload')} will leave{when}"


def _late(node: NodeView, one: ProtectedView) -> bool:
    deadline = node.drain.deadline_s if node.drain is not None else None
    return deadline is not None and one.until_s > deadline


@nodes.command("uncordon")
def uncordon(node: NodeName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let a node take workloads again."""
    with client(state_dir) as service:
        seen = service.uncordon(node)
    if as_json:
        emit_json(seen)
    else:
        line(f"{clean(seen.name)} takes workloads again ({seen.free_gpus} of {plural(seen.gpus, 'GPU')} free)")


@nodes.command("remove")
def remove(node: NodeName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Take a lost node that will not come back off the list; one of its name that comes later is a new one."""
    with client(state_dir) as service:
        seen = service.remove_node(node)
    if as_json:
        emit_json(seen)
    else:
        line(f"{clean(seen.name)} is removed; if its agent says hello again, it joins as a new node")


def _free(node: NodeView) -> str:
    if not node.gpus:
        return "cpu"
    guests = f" (+ {node.guest_gpus} for a while)" if node.guest_gpus else ""
    return f"{node.free_gpus} of {node.gpus}{guests}"


def _state(node: NodeView) -> str:
    if node.state == "lost" and node.cordoned:
        return "lost, cordoned"
    if node.closes_at_s is not None and node.state == "ready":
        return f"ready, closes {clock(node.closes_at_s, time.time())}"
    if node.drain is not None and node.state == "cordoned":
        return f"cordoned, drained{' by force' if node.drain.force else ''}{_by(node.drain.deadline_s)}"
    return node.state


def _by(deadline_s: float | None) -> str:
    return "" if deadline_s is None else f" by {clock(deadline_s, time.time())}"


@nodes.command("token")
def token(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name in gpufair.toml.")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write it there, for you only; else print it.")
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Give out the token of another machine's agent (`gpufair agent`). To be run where the service keeps its state."""
    from gpufair.node.files import write_private  # noqa: PLC0415  # only what gives out tokens needs these
    from gpufair.paths import state_dir as find_state_dir  # noqa: PLC0415
    from gpufair.service.identity.secrets import Secrets  # noqa: PLC0415
    from gpufair.service.settings.tables import NAME  # noqa: PLC0415

    if not NAME.fullmatch(node):
        raise Wrong(f"{node[:80]!r} is no name of a node")
    folder = find_state_dir(state_dir)
    if not folder.is_dir():
        raise NoSuch(f"there is no state folder {folder}; name that of the service with --state-dir")
    made = Secrets.load(folder).agent_token(node)
    if output is None:
        line(made)
        return
    write_private(output, f"{made}\n".encode())
    line(f"the token of {node} is in {output}; copy it to that machine, and give it to `gpufair agent {node}`")
