"""The environment of a workload: the agent's own, without its secrets, with the devices it may use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gpufair.node.gpus import visible_devices
from gpufair.node.processes import TAG
from gpufair.paths import REMOTE

# What opens a door elsewhere does not go to a workload, unless its owner put it into the launch himself.
_SECRET = re.compile(
    r"GPUFAIR_.*(TOKEN|SECRET|KEY).*|GPUFAIR_URL|(JUPYTER|JPY|JUPYTERHUB|CONFIGPROXY)_?.*(TOKEN|PASSWORD|SECRET|AUTH).*"
)
# Left-overs of whatever started the service: a kernel that finds them takes another process for its parent.
_FOREIGN = frozenset({"JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", "JPY_SESSION_NAME"})


def workload_environment(
    launch_env: Mapping[str, str],
    *,
    node: str,
    workload: str,
    incarnation: int,
    devices: Sequence[str],
    tag: str,
    state_dir: str = "",
    remote: bool = False,
    base: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Environment for one start of a workload. What names its GPUs cannot be overridden by ``launch_env``.

    ``state_dir`` is that of its service, so that it finds that one and what it keeps; ``remote``: it is another machine's.
    """
    env = {name: value for name, value in base.items() if not _SECRET.fullmatch(name) and name not in _FOREIGN}
    if state_dir:
        env["GPUFAIR_STATE_DIR"] = state_dir
    env.update(launch_env)
    env.update(
        CUDA_VISIBLE_DEVICES=visible_devices(devices),
        GPUFAIR_GPUS=",".join(devices),
        GPUFAIR_NODE=node,
        GPUFAIR_WORKLOAD=workload,
        GPUFAIR_INCARNATION=str(incarnation),
    )
    env.pop(REMOTE, None)
    if remote:
        env[REMOTE] = "1"
    env[TAG] = tag
    return env
