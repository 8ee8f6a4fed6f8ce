"""The config file of the agent in a pod: written by whoever makes the pod, and mounted into it with the pod's token."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufair.node.agent_config import BadConfig
from gpufair.node.files import read_json

POD_IP = "GPUFAIR_POD_IP"  # environment variable: status.podIP by the downward API
POD_FOLDER = "GPUFAIR_POD_FOLDER"  # environment variable: where ``folder`` is mounted, if that is not where the file says
LINGER_S = 300.0
# Of the grace: kept for what is still to be said when all is saved; of a very short one so large a part at most.
MARGIN_S, MOST_PART = 5.0, 0.2
LEFT_FILE = "unreported.{pod}.json"  # in the workload's folder of records: what the service does not know


@dataclass(frozen=True, slots=True)
class PodConfig:
    """Content of the config file. Paths that are not absolute are below the file's own folder.

    Attributes:
        pod: Its name, by which the service knows it.
        workload, incarnation: The only start that it may carry out.
        service: As the service's file would say it: ``url`` and, for TLS, ``ca`` (a file in PEM), ``certificate``.
        token_file: Holds the pod's token.
        folder: To be written to, and gone with the pod. All else may be read-only, but for what is mounted.
        grace_s: How long the pod has between SIGTERM and SIGKILL.
        linger_s: How long it tries to reach a service before all is saved and ended.
        gpus: How many it has, for a check; None: those that are seen. With ``virtual`` they are names only.
        listen, ports: Where its kernel is reached from elsewhere; (0, 0): any free port.
        host: What others call it; "": the pod's address, from the environment variable ``GPUFAIR_POD_IP``.
        watch_s: Between two looks whether its GPUs are used; None: nobody wants to know.
    """

    pod: str
    workload: str
    incarnation: int
    service: Mapping[str, Any]
    token_file: Path
    folder: Path
    grace_s: float
    linger_s: float = LINGER_S
    gpus: int | None = None
    virtual: bool = False
    gpu_type: str = ""
    listen: str = "0.0.0.0"  # noqa: S104  # a pod is there to be reached; who comes has to know the kernel's key
    ports: tuple[int, int] = (0, 0)
    host: str = ""
    watch_s: float | None = 10.0

    def written(self) -> dict[str, Any]:
        """As a JSON object, which ``read`` reads."""
        return {
            "pod": self.pod,
            "workload": self.workload,
            "incarnation": self.incarnation,
            "service": dict(self.service),
            "token_file": str(self.token_file),
            "folder": str(self.folder),
            "grace_s": self.grace_s,
            "linger_s": self.linger_s,
            "gpus": self.gpus,
            "virtual": self.virtual,
            "gpu_type": self.gpu_type,
            "listen": self.listen,
            "ports": list(self.ports),
            "host": self.host,
            "watch_s": self.watch_s,
        }

    @classmethod
    def read(cls, path: Path, environ: Mapping[str, str] = os.environ) -> PodConfig:
        """Raises ``BadConfig``."""
        data = read_json(path)
        if data is None:
            raise BadConfig(f"{path} is no readable JSON object; whoever made the pod has to mount its config there")
        place = path.absolute().parent
        try:
            service = {**data["service"]}
            for name in ("ca", "certificate"):
                if service.get(name):
                    service[name] = str(place / str(service[name]))
            if not isinstance(service.get("url"), str):
                raise ValueError("service has to name a url")
            first, last = data.get("ports") or (0, 0)
            gpus, watch = data.get("gpus"), data.get("watch_s", 10.0)
            self = cls(
                pod=str(data["pod"]),
                workload=str(data["workload"]),
                incarnation=int(data["incarnation"]),
                service=service,
                token_file=place / str(data["token_file"]),
                folder=place / (environ.get(POD_FOLDER) or str(data["folder"])),
                grace_s=float(data["grace_s"]),
                linger_s=float(data.get("linger_s", LINGER_S)),
                gpus=None if gpus is None else int(gpus),
                virtual=data.get("virtual") is True,
                gpu_type=str(data.get("gpu_type", "")),
                listen=str(data.get("listen") or cls.__dataclass_fields__["listen"].default),
                ports=(int(first), int(last)),
                host=str(data.get("host") or environ.get(POD_IP, "")),
                watch_s=None if watch is None else float(watch),
            )
        except (KeyError, TypeError, ValueError) as err:
            raise BadConfig(f"{path} is not the config of a pod: {type(err).__name__}: {err}") from err
        if not self.host:
            raise BadConfig(f"the pod's address is not known: set {POD_IP} in the pod, from status.podIP")
        if self.grace_s <= 0 or self.linger_s <= 0:
            raise BadConfig(f"{path}: grace_s and linger_s have to be above 0")
        return self

    def token(self) -> str:
        """The pod's token. Raises ``BadConfig``."""
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as err:
            raise BadConfig(f"the pod's token cannot be read: {err}") from err
        if not token:
            raise BadConfig(f"{self.token_file} is empty")
        return token
