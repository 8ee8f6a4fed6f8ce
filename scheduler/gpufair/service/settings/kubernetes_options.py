"""``[pool.kubernetes]`` of the configuration: the cluster behind a pool, and how its pods reach the service."""

from __future__ import annotations

import fnmatch
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpufair.core.units import HOUR, MINUTE, SECOND, Millis
from gpufair.service.settings.pod_fields import tolerations, wrong_labels
from gpufair.service.settings.pod_values import DNS_LABEL, DNS_NAME, DNS_NAMES_RULE, DNS_RULE, LABEL_KEY, LABEL_VALUE
from gpufair.service.settings.tables import Table, shown

DEFAULT_GPUS: Final = {"nvidia.com/gpu": "", "nvidia.com/mig-*": ""}
GPU_LABEL: Final = "nvidia.com/gpu.product"
TUNNEL_PORTS: Final = (42_000, 42_099)
SYSTEMS_SCHEDULER: Final = "default-scheduler"
_MARK: Final = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}")  # of a journal, as the annotation of a Lease has it
_RESOURCE: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,251}/[A-Za-z0-9*][A-Za-z0-9._*-]{0,62}")


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """The cluster of a pool whose backend is ``kubernetes``.

    Attributes:
        image: Of pods whose profile names none. It holds gpufair and the kernels.
        service_url: The address of the service as its pods reach it, ``https://…``.
        service_ca: PEM file of whoever signed the service's certificate; None: one that every system knows.
        namespace: Where our pods are.
        kubeconfig: None: the account of the pod that the service runs in, else what ``kubectl`` uses.
        context: Of the kubeconfig; "": its current one.
        gpus: Resource names, ``*`` for any end, by the type of GPU each stands for; "": by the node's label, and MIG
            devices by their own name (``mig-1g.5gb``). Whichever fits first counts.
        gpu_label: The label of a node that says which GPUs it has.
        node_selector: Labels of the nodes that belong to the pool; none: all of the cluster.
        cpu_nodes: Whether nodes without GPUs belong to it, for work without GPUs.
        tolerations: Of every pod of the pool; nodes with other taints take none.
        claim: The PersistentVolumeClaim with checkpoints and records; "": there is none, checkpoints are elsewhere.
        claim_path: Where the service itself has that volume.
        tunnel_ports: First and last port at which a pod's kernel is reached.
        lease: Name of the Lease: who holds it writes to the cluster.
        take_over: What a Lease says of another journal, if that one's pods may be ended as unknown; "": they may not.
        lease_for: How long it holds without being renewed.
        requests_per_s: To the API server, in the long run; ``burst``: at once.
        start_within: A pod that has not begun by then (image, volumes) is given up.
        margin: What a pod is given beyond the grace of its workload to end in order.
        node_silence: A node that is not Ready for so long is lost.
        namespaces: Those of others whose pods are scheduled here too, with the allocations that each may use.
    """

    image: str
    service_url: str
    service_ca: Path | None = None
    namespace: str = "gpufair"
    kubeconfig: Path | None = None
    context: str = ""
    gpus: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_GPUS))
    gpu_label: str = GPU_LABEL
    node_selector: Mapping[str, str] = field(default_factory=dict)
    cpu_nodes: bool = True
    tolerations: tuple[Mapping[str, Any], ...] = ()
    claim: str = ""
    claim_path: Path | None = None
    tunnel_ports: tuple[int, int] = TUNNEL_PORTS
    scheduler_name: str = "gpufair"
    lease: str = "gpufair"
    take_over: str = ""
    lease_for: Millis = Millis(15 * SECOND)
    requests_per_s: int = 300
    burst: int = 600
    start_within: Millis = Millis(10 * MINUTE)
    margin: Millis = Millis(15 * SECOND)
    node_silence: Millis = MINUTE
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def type_of(self, resource: str) -> str | None:
        """The configured type of GPU of a resource, "" for one by label; None: it is no GPU here."""
        return next((kind for pattern, kind in self.gpus.items() if fnmatch.fnmatchcase(resource, pattern)), None)


def read_kubernetes(table: Table, folder: Path) -> KubernetesOptions:
    """The table as options. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    default = KubernetesOptions("", "")
    options = KubernetesOptions(
        image=_image(table),
        service_url=_url(table),
        service_ca=_authority(table, folder),
        namespace=_dns(table, "namespace", default.namespace),
        kubeconfig=_file(table, "kubeconfig", folder),
        context=table.text("context", ""),
        gpus=_gpus(table),
        gpu_label=_gpu_label(table),
        node_selector=_node_selector(table),
        cpu_nodes=table.boolean("cpu_nodes", default.cpu_nodes),
        tolerations=tolerations(table, "tolerations"),
        claim=_dns(table, "claim", "", DNS_NAME) if table.has("claim") else "",
        claim_path=_claim_path(table),
        tunnel_ports=_ports(table),
        scheduler_name=_scheduler_name(table, default.scheduler_name),
        lease=_dns(table, "lease", default.lease, DNS_NAME),
        take_over=_take_over(table),
        lease_for=table.duration("lease_for", default.lease_for, Millis(5 * SECOND), MINUTE),
        requests_per_s=table.integer("requests_per_s", default.requests_per_s, 1, 10_000),
        burst=table.integer("burst", default.burst, 1, 10_000),
        start_within=table.duration("start_within", default.start_within, Millis(10 * SECOND), Millis(24 * HOUR)),
        margin=table.duration("margin", default.margin, SECOND, Millis(10 * MINUTE)),
        node_silence=table.duration("node_silence", default.node_silence, SECOND, HOUR),
        namespaces=_namespaces(table),
    )
    if options.namespace in options.namespaces:
        table.table("namespaces").fail(
            f"{options.namespace} is the namespace of the service's own pods; others' need one of their own", options.namespace
        )
    table.finish()
    return options


def _take_over(table: Table) -> str:
    mark = table.text("take_over", "")
    if mark and _MARK.fullmatch(mark) is None:
        table.fail(f"take_over = {shown(mark)}: expected what the log of the service says, a number and 32 hex digits", "take_over")
    return mark


def _image(table: Table) -> str:
    image = table.text("image", "", longest=1024)
    if not image or any(char.isspace() for char in image):
        table.fail(
            'image has to name a container image with gpufair in it, like image = "ghcr.io/lab/gpufair-kernel:1.0"',
            "image" if table.has("image") else None,
        )
    return image


def _url(table: Table) -> str:
    url = table.text("service_url", "", longest=1024).rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        good = good and not (parts.query or parts.fragment or parts.username) and not any(char.isspace() for char in url)
    except ValueError:
        good = False
    if not good:
        table.fail(
            "service_url has to be the address of this service as pods reach it, "
            'like service_url = "https://gpufair.gpufair.svc:8443"',
            "service_url" if table.has("service_url") else None,
        )
    if parts.scheme == "http" and not table.boolean("insecure", default=False):
        table.fail(
            "service_url: keys would travel unencrypted; use https://, or say insecure = true on a network of your own",
            "service_url",
        )
    table.has("insecure")
    return url


def _file(table: Table, key: str, folder: Path) -> Path | None:
    if not table.has(key):
        return None
    path = table.path(key, folder)
    if not os.path.isfile(path):  # noqa: PTH113  # Path.is_file raises what it cannot ask
        table.fail(f"{key} names {path}, which is not there; correct the path (it counts from this file)", key)
    return path


def _authority(table: Table, folder: Path) -> Path | None:
    """Each pod is given a copy: that it is no certificate would be told by none of them."""
    path = _file(table, "service_ca", folder)
    if path is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        except OSError as err:
            why = "holds no certificate" if isinstance(err, ssl.SSLError) else f"cannot be read: {err.strerror}"
            table.fail(f"service_ca names {path}, which {why}; it is a PEM file (-----BEGIN CERTIFICATE-----)", "service_ca")
    return path


def _dns(table: Table, key: str, default: str, rule: re.Pattern[str] = DNS_LABEL) -> str:
    value = table.text(key, default)
    if rule.fullmatch(value) is None:
        table.fail(f"{key} = {shown(value)}: Kubernetes takes {DNS_RULE if rule is DNS_LABEL else DNS_NAMES_RULE}", key)
    return value


def _scheduler_name(table: Table, default: str) -> str:
    name = _dns(table, "scheduler_name", default)
    if name == SYSTEMS_SCHEDULER:
        table.fail(
            f'scheduler_name = "{name}" is the scheduler that each cluster has, which would place pods as well; '
            "choose a name that no other scheduler has",
            "scheduler_name",
        )
    return name


def _gpu_label(table: Table) -> str:
    label = table.text("gpu_label", GPU_LABEL)
    if LABEL_KEY.fullmatch(label) is None:
        table.fail(f"gpu_label = {shown(label)}: that is no key of a label; nodes have it like {GPU_LABEL}", "gpu_label")
    return label


def _node_selector(table: Table) -> dict[str, str]:
    wanted = table.labels("node_selector")
    if why := wrong_labels(wanted):
        table.fail(f"node_selector {why}", "node_selector")
    return wanted


def _gpus(table: Table) -> dict[str, str]:
    gpus = table.labels("gpus") if table.has("gpus") else dict(DEFAULT_GPUS)
    if not gpus:
        table.fail('gpus names no resource, so that no node would have a GPU; name one, like { "nvidia.com/gpu" = "" }', "gpus")
    for name, kind in gpus.items():
        if LABEL_VALUE.fullmatch(kind) is None:
            table.table("gpus").fail(f"{shown(kind)} is no type of GPU; write it as a label would have it, like H100", name)
        if _RESOURCE.fullmatch(name) is None:
            table.table("gpus").fail(
                f'{shown(name)} is no name of a resource; write it as nodes do, like "nvidia.com/gpu" or "nvidia.com/mig-*"', name
            )
    return gpus


def _claim_path(table: Table) -> Path | None:
    if table.has("claim") != table.has("claim_path"):
        missing, given = ("claim_path", "claim") if table.has("claim") else ("claim", "claim_path")
        table.fail(f"{given} needs {missing} beside it: the volume, and where this service has it", given)
    if not table.has("claim_path"):
        return None
    path = Path(table.text("claim_path", "", longest=4096))
    if not path.is_absolute() or ".." in path.parts or path == Path("/"):
        table.fail(f"claim_path = {shown(str(path))}: expected an absolute path of a folder, like /var/lib/gpufair", "claim_path")
    return path


def _ports(table: Table) -> tuple[int, int]:
    given = table.raw("tunnel_ports", list(TUNNEL_PORTS))
    good = isinstance(given, list) and len(given) == 2 and all(type(port) is int for port in given)
    if not good or not 1024 <= given[0] <= given[1] <= 65_535:
        table.fail(
            f"tunnel_ports = {shown(given)}: expected the first and the last port, from 1024 to 65535, like {list(TUNNEL_PORTS)}",
            "tunnel_ports",
        )
    return given[0], given[1]


def _namespaces(table: Table) -> dict[str, tuple[str, ...]]:
    inner = table.table("namespaces")
    for name in inner.keys:
        if DNS_LABEL.fullmatch(name) is None:
            inner.fail(f"{shown(name)} is no name of a namespace; it is {DNS_RULE}", name)
        if len(set(inner.strings(name))) < len(inner.strings(name)):
            inner.fail(f"{name} names an allocation twice", name)
        if not inner.strings(name):
            inner.fail(f"{name} may use no allocation; name those that it may, or leave it out", name)
    found = {name: inner.strings(name) for name in inner.keys}
    inner.finish()
    return found
