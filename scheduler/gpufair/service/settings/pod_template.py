"""The ``pod`` of a profile: what its pods are like beyond what we say ourselves, checked field by field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.service.settings import pod_fields as check
from gpufair.service.settings import pod_storage as storage
from gpufair.service.settings.pod_values import Check, each, not_plain
from gpufair.service.settings.quantities import parse_quantity
from gpufair.service.settings.tables import Table, hint, shown

MAX_TEMPLATE_BYTES: Final = 1 << 18

_POD: Final[Mapping[str, Check]] = {
    "imagePullSecrets": each(check.wrong_secret_name),
    "volumes": each(storage.wrong_volume),
    "tolerations": each(check.wrong_toleration),
    "securityContext": check.wrong_pod_security,
    "runtimeClassName": check.wrong_name,
    "priorityClassName": check.wrong_name,
    "serviceAccountName": check.wrong_name,
    "dnsPolicy": check.wrong_dns_policy,
    "dnsConfig": check.wrong_dns,
    "hostAliases": each(check.wrong_alias),
}
_CONTAINER: Final[Mapping[str, Check]] = {
    "image": check.wrong_text,
    "imagePullPolicy": check.wrong_pull_policy,
    "env": each(check.wrong_variable),
    "envFrom": each(check.wrong_variables_from),
    "volumeMounts": each(storage.wrong_mount),
    "resources": check.wrong_resources,
    "containerSecurityContext": check.wrong_container_security,
}
_ELSEWHERE: Final[Mapping[str, Check]] = {
    "labels": check.wrong_labels,
    "annotations": check.wrong_notes,
    "nodeSelector": check.wrong_labels,
}
FIELDS: Final = {**_CONTAINER, **_POD, **_ELSEWHERE}
_PLACED: Final = "the scheduler chooses the node; use where, within and exclude of the profile, or a pool of its own"
_RUN: Final = "the scheduler says what runs in the pod"
REFUSED: Final[Mapping[str, str]] = {
    "schedulerName": "it is scheduler_name of [pool.kubernetes]",
    "nodeName": _PLACED,
    "affinity": _PLACED,
    "topologySpreadConstraints": _PLACED,
    "schedulingGates": _PLACED,
    "restartPolicy": "a workload is started anew by the scheduler, never by a kubelet",
    "terminationGracePeriodSeconds": "it follows from grace of the profile and margin of [pool.kubernetes]",
    "activeDeadlineSeconds": "for how long something may run is said at submission (--timeout)",
    "containers": "write the fields of the one container here, like image, env and volumeMounts",
    "initContainers": "a pod has one container; put what is needed into its image",
    "ephemeralContainers": _RUN,
    "command": _RUN,
    "args": _RUN,
    "workingDir": _RUN,
    "lifecycle": _RUN,
    "livenessProbe": "whether a workload lives is watched by its supervisor",
    "readinessProbe": "whether a workload lives is watched by its supervisor",
    "startupProbe": "whether a workload lives is watched by its supervisor",
    "ports": "they are tunnel_ports of [pool.kubernetes]",
    "hostname": "the scheduler names pods, so that those of a gang find each other",
    "subdomain": "the scheduler names pods, so that those of a gang find each other",
    "hostNetwork": "a pod has an address of its own, by which it is reached",
    "hostPID": "it would show a workload all processes of its node",
    "hostIPC": "it would show a workload the memory of others on its node",
    "shareProcessNamespace": "a pod has one container",
    "automountServiceAccountToken": "workloads get no access to the cluster",
    "enableServiceLinks": "it would fill the environment with the namespace's services",
    "resourceClaims": "GPUs are asked for by gpus of the profile",
    "metadata": "write labels and annotations here",
    "spec": "write the fields of the spec here",
}


class BadTemplate(GpufairError):
    """A pod template is not valid. ``field``: where; "": as a whole."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.field, self.why = where, why

    def __str__(self) -> str:
        return f"{self.field} {self.why}" if self.field and not self.why.startswith(".") else f"{self.field}{self.why}"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What an operator says of a profile's pods.

    Attributes:
        image: "": that of the pool.
        pod: Further fields of the pod's spec.
        container: Further fields of its container.
        labels: Of the pod; ``annotations`` likewise.
        cpus: Whole cores that its ``resources.requests`` ask for, as the profile's ``cpus``; ``memory`` in bytes.
        node_labels: Its ``nodeSelector``, as the profile's ``where``.
    """

    image: str = ""
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    memory: int = 0
    node_labels: Mapping[str, str] = field(default_factory=dict)


def read_pod_template(table: Table, key: str, folder: Path) -> PodTemplate:
    """``key`` of a profile: a table, or the name of a YAML or JSON file with the same fields.

    Raises: ConfigError: Something in it is not valid.
    """
    given = table.raw(key)
    if isinstance(given, str):
        path = table.path(key, folder)
        try:
            return pod_template(_loaded(path))
        except BadTemplate as err:
            table.fail(f"{key} = {shown(given)}: {path}: {err}", key)
    try:
        return pod_template(given)
    except BadTemplate as err:
        if not isinstance(given, dict) or not err.field:
            table.fail(f"{key} {err.why}", key)
        table.table(key).fail(f"{key}: {err}", err.field.partition(".")[0])


def pod_template(given: object) -> PodTemplate:
    """A template from a mapping, as it stands in a file.

    Raises: BadTemplate: Something in it is not valid.
    """
    if not isinstance(given, dict):
        raise BadTemplate("", 'has to be a table of fields of a pod, like { image = "lab/kernel:1" }, or a file with one')
    for name, value in given.items():
        if not isinstance(name, str):
            raise BadTemplate("", f"has the key {shown(name)}, which is no field of a pod; known are {', '.join(FIELDS)}")
        if name in REFUSED:
            raise BadTemplate(name, f"may not be set here: {REFUSED[name]}")
        if name not in FIELDS:
            raise BadTemplate(name, f"is unknown{hint(name, FIELDS)}; known are {', '.join(FIELDS)}")
        if why := not_plain(value) or FIELDS[name](value):
            raise BadTemplate(name, why)
    where, why = storage.wrong_places(given.get("volumes", []), given.get("volumeMounts", []))
    if why:
        raise BadTemplate(where, why)
    pods, containers = given.get("securityContext", {}), given.get("containerSecurityContext", {})
    if why := check.wrong_root(pods, containers):
        raise BadTemplate("containerSecurityContext" if "runAsUser" in containers else "securityContext", why)
    container = {name: given[name] for name in _CONTAINER if name in given and name != "image"}
    if "containerSecurityContext" in container:
        container["securityContext"] = container.pop("containerSecurityContext")
    requests = (given.get("resources") or {}).get("requests") or {}
    return PodTemplate(
        image=str(given.get("image", "")),
        pod={name: given[name] for name in _POD if name in given},
        container=container,
        labels=given.get("labels", {}),
        annotations=given.get("annotations", {}),
        # The core counts whole cores: a part of one takes a whole one.
        cpus=math.ceil(parse_quantity(requests.get("cpu", 0))),
        memory=math.ceil(parse_quantity(requests.get("memory", 0))),
        node_labels=given.get("nodeSelector", {}),
    )


def _loaded(path: Path) -> object:
    import yaml  # noqa: PLC0415  # rarely needed

    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
    except OSError as err:
        raise BadTemplate("", f"cannot be read: {err.strerror or err}") from err
    if len(data) > MAX_TEMPLATE_BYTES:
        raise BadTemplate("", f"is larger than {MAX_TEMPLATE_BYTES:,} bytes")
    try:
        return json.loads(data) if path.suffix == ".json" else yaml.safe_load(data)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError, yaml.YAMLError) as err:
        # PyYAML has no error of its own for some values that do not fit their tag.
        line = getattr(getattr(err, "problem_mark", None), "line", None)
        where = f" (line {line + 1})" if line is not None else ""
        raise BadTemplate("", f"is not valid {'JSON' if path.suffix == '.json' else 'YAML'}{where}") from err
