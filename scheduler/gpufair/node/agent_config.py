"""The config file of an agent: written by the service for those of its own machine, and by ``gpufair agent``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.node.files import read_json
from gpufair.node.owners import Owners
from gpufair.node.tunnel import TunnelOptions
from gpufair.wire import NodeInventory, from_json

GRACE_S = 120.0
STOP_PATIENCE_S = 30.0


class BadConfig(GpufairError):
    """The agent's config file cannot be used."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Content of the config file. ``linger_s`` None waits for a service for ever."""

    node: NodeInventory
    state_dir: Path
    token: str
    linger_s: float | None
    grace_s: float = GRACE_S  # for workloads whose service is gone
    watch_s: float | None = None  # between two looks whether GPUs that are held are used; None: nobody wants to know
    stop_patience_s: float = STOP_PATIENCE_S  # until a supervisor that doesn't obey a stop is killed
    # For kernels that are reached from other machines: fields of ``TunnelOptions``. The service then is elsewhere, too,
    # and has to prove that it is the one.
    tunnel: Mapping[str, Any] | None = None
    kind: str = "agents"  # as which kind of agent it speaks; "pods": see ``gpufair.node.pod``
    owners: Owners | None = None  # as whom workloads run, by an agent that is root; None: as the agent

    @classmethod
    def read(cls, path: Path) -> AgentConfig:
        """Raises ``BadConfig``."""
        data = read_json(path)
        if data is None:
            raise BadConfig(f"{path} is no readable JSON object; the service writes it when it starts an agent")
        try:
            linger, looks = data["linger_s"], data.get("watch_s")
            return cls(
                from_json(NodeInventory, data["node"]),
                Path(data["state_dir"]),
                str(data["token"]),
                None if linger is None else float(linger),
                float(data.get("grace_s", GRACE_S)),
                None if looks is None else float(looks),
                float(data.get("stop_patience_s", STOP_PATIENCE_S)),
                None if data.get("tunnel") is None else asdict(TunnelOptions.read(data["tunnel"])),
                owners=None if data.get("owners") is None else Owners.read(data["owners"]),
            )
        except (KeyError, TypeError, ValueError, GpufairError) as err:
            raise BadConfig(f"{path} is not a config of an agent: {type(err).__name__}: {err}") from err
