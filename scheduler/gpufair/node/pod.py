"""The agent in a pod: ``python -m gpufair.node.pod --config FILE``, the first process of its container.

It is the agent of a tiny node that runs one workload. It says hello to the service, starts what it is told, and ends
with an exit status of ``PodExit`` once the workload has ended and the service knows. SIGTERM is a notice.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from gpufair.node.agent import Agent
from gpufair.node.agent_config import AgentConfig, BadConfig
from gpufair.node.certificates import certificate
from gpufair.node.files import write_json
from gpufair.node.first_process import PASSED_ON, beside
from gpufair.node.machine import cpus
from gpufair.node.pod_config import MARGIN_S, MOST_PART, PodConfig
from gpufair.node.pod_exits import EXPLAINED, PodExit
from gpufair.node.pod_life import OneWorkload
from gpufair.node.pod_place import gpus_of, make_home
from gpufair.node.tunnel import TunnelOptions
from gpufair.paths import SERVICE_FILE, private_dir
from gpufair.wire import NodeInventory

LAST_WORDS = Path("/dev/termination-log")  # Kubernetes keeps what is in it with the pod's status
TAIL_BYTES = 4096
_log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns the exit status, see ``PodExit``."""
    parser = argparse.ArgumentParser(prog="python -m gpufair.node.pod", description="Agent of a pod.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file written by whoever made the pod")
    path: Path = parser.parse_args(argv).config
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until it can be heeded: see ``_run``
    if os.getpid() == 1:
        return beside(lambda: _agent(path))
    return _agent(path)


def _agent(path: Path) -> int:
    try:
        config = PodConfig.read(path)
        agent_config, problem = _prepared(config)
    except BadConfig as err:
        _log.error("%s", err)
        _last_words(f"{err}")
        return PodExit.BAD_CONFIG
    code = asyncio.run(_run(config, agent_config, problem))
    (_log.info if code == PodExit.IN_ORDER else _log.error)("it ends: %s", EXPLAINED[code])
    if code != PodExit.IN_ORDER:
        _last_words(EXPLAINED[code])
        _show_logs(config.folder)
    return code


def _prepared(config: PodConfig) -> tuple[AgentConfig, str]:
    """What the ordinary agent goes by, with its files in place; and why nothing can run here ("": all is well).

    Raises:
        BadConfig: There is no token, or the folder cannot be written to.
    """
    token = config.token()
    ids, kind, problem = gpus_of(config.gpus, named=config.virtual)
    if problem:
        _log.error("%s", problem)
    try:
        folder = private_dir(config.folder)
        make_home(folder)
        made = certificate(folder, config.host)
        write_json(folder / SERVICE_FILE, dict(config.service), durable=False)
    except OSError as err:
        raise BadConfig(f"{config.folder} has to be a folder that can be written to, like an emptyDir: {err}") from err
    margin = min(MARGIN_S, MOST_PART * config.grace_s)
    tunnel = TunnelOptions(config.listen, config.host, str(made.certificate), str(made.key), config.ports)
    agent = AgentConfig(
        # How much memory there is is the cluster's business: it is not known, and nobody is held to a part of it.
        node=NodeInventory(config.pod, ids, config.gpu_type or kind, cpus=cpus(), host=config.host),
        state_dir=folder,
        token=token,
        linger_s=config.linger_s,
        grace_s=config.grace_s - margin,
        watch_s=config.watch_s,
        tunnel=asdict(tunnel),
        kind="pods",
    )
    return agent, problem


async def _run(config: PodConfig, agent_config: AgentConfig, problem: str) -> PodExit:
    life = OneWorkload(config, problem)
    agent = Agent(agent_config, config.folder, life)
    life.attach(agent)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, life.told_to_end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    gpus = len(agent_config.node.gpu_ids)
    _log.info("pod %s for %s: %d GPUs, reached as %s", config.pod, config.workload, gpus, config.host)
    await agent.run()
    code = life.abandoned()
    if (path := life.leave_behind()) is not None:
        _log.warning("what the service does not know yet is in %s", path)
    return code


def _last_words(text: str) -> None:
    with suppress(OSError):
        if LAST_WORDS.is_file():
            LAST_WORDS.write_text(text, encoding="utf-8")


def _show_logs(folder: Path) -> None:
    """The ends of the logs that are gone with the pod, into the pod's own."""
    for path in sorted((folder / "workloads").glob("*/*.log")):
        with suppress(OSError):
            text = path.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
            if text:
                _log.error("the end of %s:\n%s", path.name, text)


if __name__ == "__main__":
    sys.exit(main())
