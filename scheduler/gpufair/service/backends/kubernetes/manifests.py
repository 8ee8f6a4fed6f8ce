"""Objects for one pod of ours: the pod, the secret for its agent, the service of its gang. Nothing is sent here.

A pod may do as little as a workload can do with: no root, nothing written to its image, no rights, no account in the
cluster, of the shared volume only the folders that are its own. An operator's template can give more, and says so.
"""

from __future__ import annotations

import base64
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.units import Millis
from gpufair.node.pod_config import POD_FOLDER, POD_IP
from gpufair.service.backends.kubernetes import names
from gpufair.service.backends.kubernetes.inventory import tolerations_of
from gpufair.service.backends.kubernetes.names import PodKey, pod_name, service_name
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_storage import CONFIG_DIR, SHM, STATE_DIR, normal_path, overlap
from gpufair.service.settings.pod_template import PodTemplate
from gpufair.service.settings.quantities import parse_quantity

CONFIG_NAME: Final = "pod.json"  # of the agent's configuration, among the secret's files
CONFIG_FILE: Final = f"{CONFIG_DIR}/{CONFIG_NAME}"
COMMAND: Final = ("python", "-P", "-m", "gpufair.node.pod", "--config", CONFIG_FILE)
CONTAINER: Final = "workload"
WHY: Final = f"{names.DOMAIN}/why"
ACCOUNT: Final = 1000  # whom a pod runs as where its template names nobody
_READABLE: Final = 0o440  # for the pod's group, which its files belong to
_STATE, _TMP, _SHM, _CONFIG, _SHARED, _RECORDS = (
    f"gpufair-{what}" for what in ("state", "tmp", "shm", "config", "shared", "records")
)


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
        record_dir: As ``StartArgs`` has it; ``checkpoint_dir`` likewise, a folder or a URL. On a shared volume they have to
            be there, writable for the pod's group: a kubelet would make them for root alone.
        nodes: Of its gang.
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


def grace_s(order: PodOrder, options: KubernetesOptions) -> int:
    """Seconds between SIGTERM and SIGKILL of its pod, if nobody says otherwise."""
    return math.ceil((order.grace + options.margin) / 1000)


def pod(order: PodOrder, options: KubernetesOptions, template: PodTemplate) -> dict[str, Any]:
    """The pod, not bound to any node yet. Its container does not start before ``secret`` is there.

    Raises:
        BadManifest: The template asks for GPUs by itself or mounts something where the shared volume is, or folders of the
            workload are not on it.
    """
    name = pod_name(order.key)
    given = copy.deepcopy({"pod": dict(template.pod), "container": dict(template.container)})
    spec, container = given["pod"], given["container"]
    mounts = [*container.pop("volumeMounts", []), *_mounts(order, options, template)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": {
                **template.labels,
                **names.labels(order.key, order.pool, order.allocation, order.user, order.kind),
            },
            "annotations": {
                **template.annotations,
                **names.notes(order.key, order.pool, order.allocation, order.user),
                WHY: why(order),
            },
        },
        "spec": {
            **spec,
            "schedulerName": options.scheduler_name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace_s(order, options),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {**_pod_security(), **spec.get("securityContext", {})},
            "tolerations": [
                *spec.get("tolerations", []),
                *(dict(one) for one in tolerations_of(order.resource, options)),
            ],
            **({"hostname": name, "subdomain": _service(order)} if order.nodes > 1 else {}),
            "containers": [
                {
                    **container,
                    "name": CONTAINER,
                    "image": template.image or options.image,
                    "command": list(COMMAND),
                    "env": [*_environment(order, container.get("env", [])), *container.get("env", [])],
                    "resources": _resources(order, options, container.get("resources", {})),
                    "securityContext": {**_container_security(), **container.get("securityContext", {})},
                    # What it last said is all that is left to explain an end that nobody expected.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": mounts,
                }
            ],
            "volumes": [*spec.get("volumes", []), *_volumes(name, options, mounts)],
        },
    }


def secret(order: PodOrder, options: KubernetesOptions, pod_uid: str, files: Mapping[str, str]) -> dict[str, Any]:
    """What only this pod may read (in ``CONFIG_DIR``); gone with it. ``files``: contents by name, ``CONFIG_NAME`` among them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(order, options, pod_name(order.key), pod_uid),
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def service(order: PodOrder, options: KubernetesOptions, pod_uid: str) -> dict[str, Any]:
    """The headless service of a gang, gone with its first pod (``order``, ``pod_uid``)."""
    wanted = names.labels(order.key, order.pool, order.allocation, order.user)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _owned(order, options, _service(order), pod_uid),
        "spec": {
            "clusterIP": "None",
            # They look for each other before anybody could call them ready.
            "publishNotReadyAddresses": True,
            "selector": {what: wanted[what] for what in (names.MANAGED_BY, names.WORKLOAD, names.INCARNATION)},
        },
    }


def host_of(key: PodKey, options: KubernetesOptions) -> str:
    """The name of a gang's pod, as the others of the gang reach it."""
    return f"{pod_name(key)}.{service_name(key.workload, key.incarnation)}.{options.namespace}.svc"


def binding(name: str, namespace: str, uid: str, node: str) -> dict[str, Any]:
    """The Binding of a pod to a node, which holds for this very pod only."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def why(order: PodOrder) -> str:
    """What a pod is, and whom to ask: for whoever finds it."""
    gpus = "no GPU" if not order.gpus else f"{order.gpus} GPU{'s' if order.gpus > 1 else ''}"
    part = f", part {order.key.rank + 1} of {order.nodes}" if order.nodes > 1 else ""
    what = f"{order.kind} {order.name!r}" if order.name else order.kind
    return (
        f"{what} of {order.user}{part}, start {order.key.incarnation}: {gpus} on {order.node} for {order.allocation}, "
        f"decided by gpufair; `gpufair why {order.key.workload}` says more"
    )


def _service(order: PodOrder) -> str:
    return service_name(order.key.workload, order.key.incarnation)


def _owned(order: PodOrder, options: KubernetesOptions, name: str, pod_uid: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": options.namespace,
        "labels": names.labels(order.key, order.pool, order.allocation, order.user),
        "annotations": names.notes(order.key, order.pool, order.allocation, order.user),
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod_name(order.key), "uid": pod_uid}],
    }


def _pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": ACCOUNT,
        "runAsGroup": ACCOUNT,
        "fsGroup": ACCOUNT,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _environment(order: PodOrder, given: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for name, path in ((POD_IP, "status.podIP"), ("GPUFAIR_POD", "metadata.name"), ("GPUFAIR_HOST", "spec.nodeName")):
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    yield {"name": POD_FOLDER, "value": STATE_DIR}
    named = {one["name"] for one in given}
    if "HOME" not in named:
        yield {"name": "HOME", "value": "/tmp"}  # noqa: S108  # the pod's own, and the one place that anybody may write to
    if not order.gpus:
        # Where NVIDIA's runtime is the default one, images say "all", and would get them.
        yield {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def _resources(order: PodOrder, options: KubernetesOptions, given: Mapping[str, Any]) -> dict[str, Any]:
    requests, limits = dict(given.get("requests") or {}), dict(given.get("limits") or {})
    for name in (*requests, *limits):
        if options.type_of(name) is not None:
            raise BadManifest(
                f"the pod template asks for {name}, which is a GPU here; leave that to gpus of the profile"
            )
    # What the core counts is what the cluster counts: nothing else is asked for of these two.
    for name, amount in (("cpu", order.cpus), ("memory", order.memory_bytes)):
        requests.pop(name, None)
        if amount:
            requests[name] = str(amount)
            if name in limits and parse_quantity(limits[name]) < amount:
                limits[name] = str(amount)
    if order.memory_bytes:
        limits["memory"] = str(order.memory_bytes)
    elif "memory" in limits:
        requests["memory"] = "0"  # else Kubernetes would take the limit for a request, which nobody has counted
    if "cpu" in limits and not order.cpus:
        requests["cpu"] = "0"
    if order.gpus:
        requests[order.resource] = limits[order.resource] = str(order.gpus)
    return {what: amounts for what, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _mounts(order: PodOrder, options: KubernetesOptions, template: PodTemplate) -> Iterator[dict[str, Any]]:
    theirs = [normal_path(one["mountPath"]) for one in template.container.get("volumeMounts", [])]
    yield {"name": _CONFIG, "mountPath": CONFIG_DIR, "readOnly": True}
    yield {"name": _STATE, "mountPath": STATE_DIR}
    yield {"name": _TMP, "mountPath": "/tmp"}  # noqa: S108  # as above
    if SHM not in theirs:
        # Data loaders hand arrays over in there, and the usual 64 MB are soon full.
        yield {"name": _SHM, "mountPath": SHM}
    if not options.claim or options.claim_path is None:
        if not any(overlap(path, order.record_dir) for path in theirs):
            # Outputs are written there in any case, and seen as long as somebody looks; without a volume they go with the pod.
            yield {"name": _RECORDS, "mountPath": order.record_dir}
        return
    for folder in (order.record_dir, order.checkpoint_dir):
        if not folder or "://" in folder:
            continue
        if clash := next((path for path in theirs if overlap(path, folder)), ""):
            raise BadManifest(
                f"the pod template mounts a volume at {clash}, where this workload has {folder}; mount it elsewhere"
            )
        path, root = PurePosixPath(folder), PurePosixPath(str(options.claim_path))
        if path == root or not path.is_relative_to(root) or ".." in path.parts:
            raise BadManifest(
                f"{folder} is not on the volume of {options.claim}, which the service has at {options.claim_path}; "
                "correct claim_path of [pool.kubernetes]"
            )
        yield {"name": _SHARED, "mountPath": folder, "subPath": str(path.relative_to(root))}


def _volumes(name: str, options: KubernetesOptions, mounts: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    sources: dict[str, dict[str, Any]] = {
        _CONFIG: {"secret": {"secretName": name, "defaultMode": _READABLE}},
        _STATE: {"emptyDir": {}},
        _TMP: {"emptyDir": {}},
        _SHM: {"emptyDir": {"medium": "Memory"}},
        _RECORDS: {"emptyDir": {}},
        _SHARED: {"persistentVolumeClaim": {"claimName": options.claim}},
    }
    mounted = {mount["name"] for mount in mounts}
    return ({"name": volume, **source} for volume, source in sources.items() if volume in mounted)
