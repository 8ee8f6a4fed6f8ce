"""Decisions as commands for agents: which node is told what, with which arguments."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpufair.core import actions as act
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.record import Workload
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.channels import Channel
from gpufair.service.nodes.rendezvous import rendezvous
from gpufair.service.workloads import retries, standin, time_limit
from gpufair.service.workloads.details import Detail
from gpufair.wire import Command, StartArgs, to_json

LOOPBACK = "127.0.0.1"  # where all agents of a workload run on this machine
# Names under which services of ours and of Jupyter get their own tokens: never handed on to user code.
OWN_VARIABLES = frozenset(
    {"GPUFAIR_TOKEN", "GPUFAIR_TOKEN_FILE", "JUPYTER_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN", "JPY_PARENT_PID"}
)


def hosts(workload: Workload) -> tuple[str, ...]:
    """The nodes on which something is started for it, its first node first.

    A kernel runs on the first node of a gang; the GPUs of the others are leased to it and nothing else starts on them.
    Commands, and pods of others, run on each.
    """
    if workload.held is None:
        return ()
    nodes = tuple(lease.node for lease in workload.held.leases)
    return nodes if workload.spec.launch.get("type") in {"command", "pod"} else nodes[:1]


class Dispatcher:
    """Makes commands. ``channel_of`` gives the line of a node."""

    def __init__(
        self,
        state_dir: Path,
        secrets: Secrets,
        autosave_share: float = 0.0,
        checkpoint_store: Mapping[str, Any] | None = None,
        checkpoint_url: str = "",
    ) -> None:
        """``autosave_share``, ``checkpoint_store``: see ``StartArgs``; ``checkpoint_url``: see ``Config``."""
        self._checkpoint_store = dict(checkpoint_store or {})
        self._checkpoints = checkpoint_url or str(state_dir / "checkpoints")
        self._state_dir, self._secrets = state_dir, secrets
        self._autosave_share = autosave_share
        self.detail_of: Callable[[WorkloadId], Detail] = lambda _: Detail()  # what earlier starts have used
        self.channels: dict[str, Channel] = {}
        self.addresses: dict[str, str] = {}  # what others call a node on another machine

    def channel(self, node: str) -> Channel:
        """The line of a node, opened on first use."""
        return self.channels.setdefault(node, Channel(node))

    def perform(self, action: act.Action, state: State) -> None:
        """Tell the agents what one decision asks of them."""
        workload = state.workload(action.workload)
        if (session := standin.followers(action, state)) is not None:
            self.start(session, session.incarnation, state)
        if workload.held is None:
            return
        match action:
            case act.Start():
                self.start(workload, action.held.incarnation, state)
            case act.BeginCheckpoint():
                text = standin.MOVING if standin.session_of(workload.spec) else notice(action)
                args = {"deadline_s": action.deadline / 1000, "text": text}
                self.tell(workload, "preempt", action.incarnation, args)
            case act.Stop():
                self.tell(workload, "stop", action.incarnation)
            case _:
                pass  # Reserve, Unreserve, Requeue, Park and End change nothing on a node

    def due(self, workload: Workload, node: str, runs: bool, state: State) -> None:
        """Repeat to the agent of ``node`` what is still due of a workload that holds GPUs there."""
        if workload.phase in (Phase.STARTING, Phase.RESTORING) and not runs:
            self.start(workload, workload.incarnation, state, only=node)
        elif workload.phase is Phase.CHECKPOINTING and runs:
            deadline = workload.deadline or workload.submitted_at
            args = {"deadline_s": deadline / 1000, "text": workload.reason}
            self.channel(node).send("preempt", workload.id, workload.incarnation, args)
        elif workload.phase is Phase.STOPPING and runs:
            self.channel(node).send("stop", workload.id, workload.incarnation)

    def start(self, workload: Workload, incarnation: int, state: State, only: str | None = None) -> None:
        """Send ``start`` to each host of the workload (or to one of them); not before its stand-in has ended."""
        for node, args in self._starts(workload, state):
            if only in (None, node):
                self.channel(node).send("start", workload.id, incarnation, to_json(args))

    def start_again(self, workload: Workload, node: str, state: State) -> Command | None:
        """What ``start`` has told, or would tell, ``node``: for whoever hands commands on and has lost it. None: no start
        of it is due there now."""
        if workload.phase not in (Phase.STARTING, Phase.RESTORING):
            return None
        due = (args for place, args in self._starts(workload, state) if place == node)
        return next((Command(0, "start", workload.id, workload.incarnation, to_json(args)) for args in due), None)

    def _starts(self, workload: Workload, state: State) -> Iterator[tuple[str, StartArgs]]:
        held = workload.held
        if held is None or standin.waits_for(state, workload.id):
            return
        session = standin.session_of(workload.spec)
        owner = workload if session is None else state.workload(session)
        places = hosts(workload)
        for rank, lease in enumerate(held.leases):
            if lease.node in places:
                args = self._start_args(workload, owner, rank, places, lease.gpus)
                if (left := time_limit.left_of(workload.spec, self.detail_of(workload.id).ran_ms)) is not None:
                    grace = state.facts.grace(state.facts.record(workload.id))
                    args = replace(args, run_limit_s=left / 1000, grace_s=grace / 1000)
                yield lease.node, args

    def tell(self, workload: Workload, kind: str, incarnation: int, args: dict[str, Any] | None = None) -> None:
        """Send a command to every host of the workload."""
        for node in hosts(workload):
            self.channel(node).send(kind, workload.id, incarnation, args)

    def checkpoint_dir(self, user: str, workload: WorkloadId) -> str:
        """Where the checkpoints of a workload are: a folder or a URL."""
        return f"{self._checkpoints}/{user}/{workload}"

    def record_dir(self, workload: WorkloadId) -> Path:
        """Where its recorded outputs are."""
        return self._state_dir / "records" / workload

    def _meeting_place(self, places: Sequence[str]) -> str:
        """The address of the first of these nodes, as the others reach it."""
        if not any(self.addresses.get(node) for node in places):
            return LOOPBACK
        return self.addresses.get(places[0]) or socket.getfqdn()

    def _start_args(
        self, workload: Workload, owner: Workload, rank: int, places: Sequence[str], gpus: int
    ) -> StartArgs:
        """``owner``: whose keys and checkpoints they are; of a stand-in its session."""
        spec, saved, nodes = workload.spec, owner.checkpoint, len(places)
        launch = dict(spec.launch)
        given = launch.get("env")
        env = (
            {key: value for key, value in given.items() if key not in OWN_VARIABLES} if isinstance(given, dict) else {}
        )
        if nodes > 1:
            # The variables that the owner set are his own, as with torchrun's own options.
            env = rendezvous(workload.id, workload.incarnation, rank, nodes, gpus, self._meeting_place(places)) | env
            env |= {"GPUFAIR_NODE_RANK": str(rank), "GPUFAIR_NODES": str(nodes)}
        env |= {"GPUFAIR_ALLOCATION": spec.allocation}
        if launch.get("type") == "command":  # for what it writes down of itself
            env |= {"GPUFAIR_SUBMITTED_S": f"{workload.submitted_at / 1000:.3f}"}
            attempt, most = self.detail_of(workload.id).retries + 1, retries.allowed(spec) + 1
            env |= {"GPUFAIR_ATTEMPT": str(attempt), "GPUFAIR_ATTEMPTS": str(most)}
        launch["env"] = env
        # Which checkpoint the core chose is the one it has, unless its owner asked for a fresh start.
        restoring = workload.phase is Phase.RESTORING or owner is not workload
        return StartArgs(
            launch=launch,
            user=spec.user,
            name=spec.name,
            gpus=gpus,
            kernel_key=self._secrets.kernel_key(owner.id),
            checkpoint_key=self._secrets.checkpoint_key(spec.user),
            checkpoint_dir=self.checkpoint_dir(spec.user, owner.id),
            image_dir=str(self._state_dir / "checkpoints" / spec.user / f"{owner.id}.images"),
            record_dir=str(self.record_dir(workload.id)),
            next_sequence=saved.sequence + 1 if saved else 1,
            restore=saved.id if restoring and saved else None,
            autosave_share=self._autosave_share if spec.resumable else 0.0,
            checkpoint_store=self._checkpoint_store,
            memory_bytes=spec.shape.memory_per_node,
        )


def notice(action: act.BeginCheckpoint) -> str:
    """The sentence that the owner of the session reads."""
    if action.reason is PreemptReason.SHUTDOWN:
        return "the scheduler service is ending; the session is checkpointed and can be resumed at the next start"
    return action.why
