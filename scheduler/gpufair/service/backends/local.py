"""Agents on this machine: one process for each configured node, adopted if it lives, started again if it dies.

An agent is a session of its own. It is not ended with the service: a restarted service finds it by its lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gpufair.core.errors import GpufairError
from gpufair.core.units import Millis
from gpufair.node.files import is_locked, read_json, write_json
from gpufair.node.gpus import inventory, virtual
from gpufair.node.machine import cpus, memory_bytes
from gpufair.paths import private_dir
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.dispatch import OWN_VARIABLES
from gpufair.service.settings.node_options import NodeConfig
from gpufair.wire import NodeInventory, to_json

# At the most well below the silence after which a node is lost: whatever kills its agents, its work is not given away.
BACKOFF_S = (0.2, 5.0)
STEADY_S = 60.0  # an agent that lived that long has not failed at its start
POLL_S = 1.0
# How long an agent waits for a service that crashed, at the least: it must outlast a restart on a slow machine.
LEAST_ORPHANED_S = 60.0
_LOG_LIMIT_BYTES = 8 << 20
_log = logging.getLogger(__name__)


class AgentsFailed(GpufairError):
    """The folders of the nodes can't be used."""


def inventories(nodes: Sequence[NodeConfig]) -> dict[str, NodeInventory]:
    """What each configured node of this machine offers. Blocks while NVML is asked.

    Raises:
        AgentsFailed: A node asks for the GPUs of this machine, and there are none.
    """
    real = inventory() if any(node.gpus is None for node in nodes) else ()
    found: dict[str, NodeInventory] = {}
    for node in nodes:
        if node.remote:
            continue
        if node.gpus is None:
            ids = tuple(gpu.id for gpu in real) or virtual(node.fallback_gpus)
            if not ids:
                raise AgentsFailed(
                    f'node {node.name!r} has gpus = "auto", but NVML finds no GPU on this machine; '
                    "install the driver, or write a number for virtual GPUs"
                )
            gpu_type = node.gpu_type or (real[0].type if real else "")
        else:
            ids, gpu_type = virtual(node.gpus), node.gpu_type
        found[node.name] = NodeInventory(
            node.name,
            ids,
            gpu_type,
            node.pool,
            cpus() if node.cpus is None else node.cpus,
            memory_bytes() if node.memory is None else node.memory,
            dict(node.labels),
            node.device_files,
        )
    return found


def remotes(nodes: Sequence[NodeConfig]) -> dict[str, NodeInventory]:
    """What is known of the nodes that are other machines, before their agents have said hello."""
    return {
        node.name: NodeInventory(node.name, (), node.gpu_type, node.pool, labels=dict(node.labels))
        for node in nodes
        if node.remote
    }


@dataclass(slots=True)
class _Node:
    inventory: NodeInventory
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0  # monotonic
    pause_s: float = field(default=BACKOFF_S[0])


class LocalAgents:
    """Starts, watches and ends the agents of this machine.

    Args:
        state_dir: The service's.
        secrets: For the agents' tokens.
        nodes: What each one offers.
        linger: For how long they go on without any service; None: for ever.
        grace: How long their workloads may take to checkpoint when that is over.
        watch: Between two looks whether GPUs that are held are used; None: that is of no interest.
    """

    def __init__(
        self,
        state_dir: Path,
        secrets: Secrets,
        nodes: Mapping[str, NodeInventory],
        linger: Millis | None,
        grace: Millis,
        watch: Millis | None = None,
    ) -> None:
        self._state_dir, self._secrets = state_dir, secrets
        self._linger, self._grace, self._watch = linger, grace, watch
        self._nodes = {name: _Node(inv, state_dir / "nodes" / name) for name, inv in nodes.items()}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Write the agents' configurations and see to it that each agent lives.

        Raises:
            AgentsFailed: A folder can't be written.
        """
        try:
            for name, node in self._nodes.items():
                await asyncio.to_thread(self._configure, name, node)
        except OSError as err:
            raise AgentsFailed(f"the folder of a node cannot be written: {err}") from err
        self._tasks = [
            asyncio.create_task(self._keep(name, node), name=f"agent-{name}") for name, node in self._nodes.items()
        ]

    async def leave(self) -> None:
        """Stop watching; the agents go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self, wait_s: float = 5.0) -> None:
        """End the agents. Their workloads are not touched: they must have ended before."""
        await self.leave()
        pids = {name: pid for name, node in self._nodes.items() if (pid := _agent_pid(node.folder)) is not None}
        for pid in pids.values():
            _signal(pid, signal.SIGTERM)
        until = time.monotonic() + wait_s
        while time.monotonic() < until and any(is_locked(self._nodes[name].folder / "agent.lock") for name in pids):
            await asyncio.sleep(0.05)
        for name, pid in pids.items():
            if _agent_pid(self._nodes[name].folder) == pid:
                _log.warning("the agent of node %s did not end; killing it", name)
                _signal(pid, signal.SIGKILL)
        for node in self._nodes.values():
            if node.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(node.process.wait, 2.0)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _configure(self, name: str, node: _Node) -> None:
        """Write the agent's configuration; one that lives with another configuration is replaced (its workloads stay)."""
        private_dir(node.folder)
        path = node.folder / "agent-config.json"
        wanted = {
            "node": to_json(node.inventory),
            "state_dir": str(self._state_dir),
            "token": self._secrets.agent_token(name),
            "linger_s": None if self._linger is None else max(self._linger / 1000, LEAST_ORPHANED_S),
            "grace_s": self._grace / 1000,
            "watch_s": None if self._watch is None else self._watch / 1000,
        }
        known = read_json(path)
        if known is not None and known == _as_json(wanted):
            return
        write_json(path, wanted)
        if known is not None and (pid := _agent_pid(node.folder)) is not None:
            _log.info("node %s is configured anew; its agent is replaced", name)
            _signal(pid, signal.SIGTERM)

    async def _keep(self, name: str, node: _Node) -> None:
        while True:
            try:
                if await asyncio.to_thread(is_locked, node.folder / "agent.lock"):
                    await self._until_free(node)
                    continue
                node.process = await asyncio.to_thread(self._spawn, node)
                node.began = time.monotonic()
                code = await _ended(node.process)
            except OSError as err:
                code = -1
                _log.error("the agent of node %s cannot be started: %s", name, err)
            if time.monotonic() - node.began > STEADY_S:
                node.pause_s = BACKOFF_S[0]
            _log.warning(
                "the agent of node %s ended (exit code %d, see %s); the next one starts in %.1f s",
                name,
                code,
                node.folder / "agent.log",
                node.pause_s,
            )
            await asyncio.sleep(node.pause_s)
            node.pause_s = min(node.pause_s * 2, BACKOFF_S[1])

    async def _until_free(self, node: _Node) -> None:
        """Wait until the adopted agent, which is no child of ours, is gone."""
        while await asyncio.to_thread(is_locked, node.folder / "agent.lock"):
            await asyncio.sleep(POLL_S)

    def _spawn(self, node: _Node) -> subprocess.Popen[bytes]:
        log = node.folder / "agent.log"
        if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".log.1"))
        env = {key: value for key, value in os.environ.items() if key not in OWN_VARIABLES}
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                # -P: a file in its folder must not be taken for a module.
                [sys.executable, "-P", "-m", "gpufair.node.agent", "--config", str(node.folder / "agent-config.json")],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=node.folder,
                env=env,
                start_new_session=True,
                close_fds=True,
            )
        finally:
            os.close(file)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a child, looked for often at first: an agent that cannot start ends at once."""
    pause = 0.05
    while (code := process.poll()) is None:
        await asyncio.sleep(pause)
        pause = min(pause * 2, POLL_S)
    return code


def _agent_pid(folder: Path) -> int | None:
    """The process that runs as the agent of this folder; None if there is none for certain."""
    if not is_locked(folder / "agent.lock"):
        return None
    info = read_json(folder / "agent.json")
    pid = info.get("pid") if info else None
    if not isinstance(pid, int) or pid <= 1:
        return None
    try:
        # A pid in a file may be anybody's by now.
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    return pid if str(folder / "agent-config.json") in command else None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _as_json(value: object) -> object:
    """As it is when it has been written and read: tuples are lists then."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
