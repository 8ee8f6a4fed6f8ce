"""Objects for one pod of ours: the pod, the secret for its agent, the service of its gang. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import PodTemplate

CONFIG_DIR: Final = "/etc/gpufair"  # of the secret's files in the pod
CONFIG_FILE: Final = f"{CONFIG_DIR}/pod.json"
STATE_DIR: Final = "/run/gpufair"  # of the agent; of this pod alone


class BadManifest(GpufairError):
    """No pod can be made of what is asked for."""


@dataclass(frozen=True, slots=True)
class PodOrder:
    """A pod to be made.

    Attributes:
        node: Of the cluster, where it is to run: for people; the Binding says it.
        resource: The GPUs' resource name; "" where ``gpus`` is 0.
        cpus: Cores; 0: whatever is free. ``memory_bytes`` likewise.
        grace: Of the policy, for its notice.
        record_dir: As ``StartArgs`` has it; ``checkpoint_dir`` likewise, a folder or a URL.
        nodes: Of its gang.
        why: A sentence: what this is and whom to ask.
    """

    key: PodKey
    pool: str
    allocation: str
    user: str
    name: str
    kind: str
    node: str
    resource: str
    gpus: int
    grace: Millis
    record_dir: str
    checkpoint_dir: str
    cpus: int = 0
    memory_bytes: int = 0
    nodes: int = 1
    why: str = ""


def pod(order: PodOrder, options: KubernetesOptions, template: PodTemplate) -> dict[str, Any]:
    """The pod, not bound to any node yet. It waits for ``secret`` before its container starts.

    Raises:
        BadManifest: The template asks for GPUs by itself, or its folders are not on the shared volume.
    """
    raise NotImplementedError


def secret(order: PodOrder, options: KubernetesOptions, pod_uid: str, files: Mapping[str, str]) -> dict[str, Any]:
    """What only this pod may read (``CONFIG_DIR``); gone with it. ``files``: contents by name, ``pod.json`` among them."""
    raise NotImplementedError


def service(order: PodOrder, options: KubernetesOptions) -> dict[str, Any]:
    """The headless service of a gang: each of its pods has ``host_of`` as its name from then on."""
    raise NotImplementedError


def host_of(key: PodKey, options: KubernetesOptions) -> str:
    """The name of a gang's pod, as the others of the gang reach it."""
    raise NotImplementedError


def binding(order: PodOrder, options: KubernetesOptions, pod_uid: str) -> dict[str, Any]:
    """The Binding to ``order.node``, which holds for this very pod only."""
    raise NotImplementedError
