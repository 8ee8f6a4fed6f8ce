"""A pod under test: fake service, real agent as a local process, real supervisor, real kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpufair.node.pod_config import PodConfig
from tests.integration.node.fake_service import TOKEN
from tests.integration.node.rig import Rig

POD = "gpufair-w-1-0"


class PodRig(Rig):
    """The pod of the first start of workload ``w``, with two virtual GPUs."""

    def __init__(self, root: Path, grace_s: float = 20.0, linger_s: float = 60.0, **options: Any) -> None:
        super().__init__(root)
        self.folder = root / "scratch"
        self.given = root / "secret"  # what Kubernetes would mount from a Secret
        self.given.mkdir()
        (self.given / "token").write_text(TOKEN)
        self.options = {"grace_s": grace_s, "linger_s": linger_s, "gpus": 2, "virtual": True, **options}
        self.environment: dict[str, str] = {}

    @property
    def service_file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "service.json").read_text())
        return found

    def start_agent(self) -> None:
        config = PodConfig(
            pod=POD,
            workload="w",
            incarnation=1,
            service={"url": self.service_file["url"]},
            token_file=Path("token"),
            folder=self.folder,
            listen="127.0.0.1",
            **self.options,
        )
        (self.given / "pod.json").write_text(json.dumps(config.written()))
        environment = {**os.environ, "GPUFAIR_POD_IP": "127.0.0.1", **self.environment}
        with (self.root / "pod.log").open("ab") as log:
            self.agent = subprocess.Popen(
                [*self.within, sys.executable, "-P", "-m", "gpufair.node.pod", "--config", str(self.given / "pod.json")],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def move_service(self) -> None:
        """The pod's service is at another address now: as a Service of Kubernetes would, its old one leads there."""
        (self.folder / "service.json").write_text(json.dumps({"url": self.service_file["url"]}))

    def terminate(self) -> None:
        """What the kubelet does first."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGTERM)

    def code(self, timeout_s: float = 30.0) -> int:
        """The exit status of the pod."""
        assert self.agent is not None
        return self.agent.wait(timeout_s)

    def said(self) -> str:
        """The pod's log."""
        return (self.root / "pod.log").read_text()
