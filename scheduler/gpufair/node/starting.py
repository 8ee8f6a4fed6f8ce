"""Carrying out a ``start``: as whom, on which devices, with which environment and which files."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.node import process_image
from gpufair.node.agent_config import AgentConfig
from gpufair.node.certificates import pair
from gpufair.node.environment import workload_environment
from gpufair.node.gpus import allot
from gpufair.node.memory_limit import limit_of
from gpufair.node.supervised import TUNNEL_FILES, Supervised
from gpufair.node.theirs import give_places
from gpufair.wire import Command, StartArgs, from_json, to_json


class BadStart(GpufairError):
    """A start command that cannot be carried out here."""


async def start(
    config: AgentConfig,
    root: Path,
    command: Command,
    taken: Callable[[], Iterable[str]],
    on_report: Callable[[Supervised, dict[str, Any]], None],
) -> Supervised:
    """Start a workload's supervisor.

    Args:
        root: Where the folders of workloads are.
        taken: The devices of those that run.

    Raises:
        FileExistsError: It was started before.
        GpufairError, ValueError, OSError: It cannot be started; the text is for its owner.
    """
    node = config.node
    args = from_json(StartArgs, command.args)
    _check_launch(args.launch)
    account = None if config.owners is None else await asyncio.to_thread(config.owners.account, args.user)
    item = Supervised.at(root, command.workload, command.incarnation, on_report, account)
    files: dict[str, bytes] = {}
    base: Mapping[str, str] = os.environ
    tunnel = config.tunnel
    if account is not None and config.owners is not None:
        await asyncio.to_thread(give_places, account, Path(args.record_dir), args.checkpoint_dir)
        base = account.environment() | dict(config.owners.environment)
        if tunnel is not None:
            # Whoever had the node's own could be taken for any kernel on it.
            files = dict(zip(TUNNEL_FILES, await asyncio.to_thread(pair, str(tunnel["host"])), strict=True))
            certificate, key = (str(item.place / name) for name in TUNNEL_FILES)
            tunnel = {**tunnel, "certificate": certificate, "key": key}
    held = list(taken())
    devices = allot(node.gpu_ids, held, args.gpus)
    if devices is None:
        free = len(node.gpu_ids) - len(held)
        raise BadStart(f"{args.gpus} GPUs were asked for but {free} of {len(node.gpu_ids)} are free on {node.name}")
    limit = limit_of(args.memory_bytes, args.gpus, node.memory_bytes)
    # Images belong to whoever may read all memory of a machine, and are made by plugins that run as the agent.
    image = process_image.of(command.args) if account is None else None
    tag = secrets.token_hex(16) if image is None else str(image["tag"])  # its processes have that in them
    env = workload_environment(
        args.launch.get("env") or {},
        node=node.name,
        workload=command.workload,
        incarnation=command.incarnation,
        devices=devices,
        tag=tag,
        state_dir=str(config.state_dir) if account is None else "",
        remote=tunnel is not None,
        base=base,
    )
    item.launch(
        {
            "args": to_json(args),
            "workload": command.workload,
            "incarnation": command.incarnation,
            "devices": list(devices),
            "env": env,
            "tag": tag,
            "image": image,
            "memory_limit": None if limit is None else asdict(limit),
            "tunnel": tunnel,
            "orphan_timeout_s": config.linger_s,
            "account": None if account is None else asdict(account),
        },
        files,
    )
    return item


def _check_launch(launch: dict[str, Any]) -> None:
    argv, env = launch.get("argv"), launch.get("env") or {}
    if launch.get("type") not in {"kernel", "command"}:
        raise BadStart(f"launch type {launch.get('type')!r} is unknown; it is 'kernel' or 'command'")
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
        raise BadStart("launch needs argv, a list of at least one string")
    if not isinstance(env, dict) or not all(isinstance(v, str) for pair in env.items() for v in pair):
        raise BadStart("launch env must map names to strings")
    if not isinstance(launch.get("cwd") or "", str):
        raise BadStart("launch cwd must be a string")
