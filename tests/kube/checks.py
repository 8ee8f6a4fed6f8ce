"""What the API server refuses (422) and fills in, as far as the scheduler can run into it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.kube.answers import Refused, invalid
from tests.kube.resources import DNS_LABEL, Resource

Causes = list[tuple[str, str]]

_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_SUFFIXES: dict[str, Decimal | int] = {"": 1, "m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
             "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(m|k|[MGTPE]i?|Ki)?")


def quantity(text: Any) -> Decimal:
    """`500m`, `4Gi`, `2`. ValueError for what is none."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    try:
        return Decimal(found[1]) * _SUFFIXES[found[2] or ""]
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is no quantity") from error


def check_metadata(resource: Resource, metadata: Mapping[str, Any]) -> None:
    name = metadata.get("name", "")
    causes: Causes = []
    if not name:
        raise invalid(resource, "", [("metadata.name", "Required value: name or generateName is required")])
    if not re.fullmatch(resource.name_pattern, name):
        causes.append(("metadata.name", f'Invalid value: "{name}": regex used for validation is \'{resource.name_pattern}\''))
    elif len(name) > resource.name_length:
        causes.append(("metadata.name", f'Invalid value: "{name}": must be no more than {resource.name_length} characters'))
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(key):
            causes.append(("metadata.labels", f'Invalid value: "{key}": name part must consist of alphanumeric characters'))
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            causes.append(("metadata.labels", f'Invalid value: "{value}": a valid label must be an empty string or at most 63 alphanumeric characters'))
    for key in metadata.get("annotations") or {}:
        if not _LABEL_KEY.fullmatch(key):
            causes.append(("metadata.annotations", f'Invalid value: "{key}": name part must consist of alphanumeric characters'))
    for place, owner in enumerate(metadata.get("ownerReferences") or []):
        causes += [
            (f"metadata.ownerReferences[{place}].{field}", f'Invalid value: "": {field} must not be empty')
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    if causes:
        raise invalid(resource, name, causes)


def check_new(resource: Resource, obj: Mapping[str, Any]) -> None:
    check_metadata(resource, obj["metadata"])
    causes: Causes = []
    if resource.plural == "pods":
        try:
            causes = list(_pod_causes(obj.get("spec") or {}))
        except ValueError as error:
            raise Refused(400, f'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression: {error}') from error
    elif resource.plural == "secrets":
        causes = list(_secret_causes(obj))
    elif resource.plural == "services" and not (obj.get("spec") or {}).get("ports") and obj["spec"].get("clusterIP") != "None":
        causes = [("spec.ports", "Required value")]
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def _secret_causes(obj: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in (obj.get("data") or {}).items():
        if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
            yield f"data[{key}]", f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters, \'-\', \'_\' or \'.\''
        try:
            base64.b64decode(value, validate=True)
        except ValueError:
            yield f"data[{key}]", "Invalid value: illegal base64 data"


def _pod_causes(spec: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or []):
        name = volume.get("name", "")
        if not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            yield f"spec.volumes[{i}].name", f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \'-\''
        if name in volumes:
            yield f"spec.volumes[{i}].name", f'Duplicate value: "{name}"'
        volumes.add(name)
    yield from _container_causes(spec, volumes)
    if spec.get("restartPolicy", "Always") not in {"Always", "OnFailure", "Never"}:
        yield "spec.restartPolicy", f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
    if int(spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield "spec.terminationGracePeriodSeconds", "Invalid value: must be greater than or equal to 0"


def _container_causes(spec: Mapping[str, Any], volumes: set[str]) -> Iterable[tuple[str, str]]:
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    names: set[str] = set()
    for i, container in enumerate(spec.get("containers") or []):
        where = f"spec.containers[{i}]"
        name = container.get("name", "")
        if not name:
            yield f"{where}.name", "Required value"
        elif not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            yield f"{where}.name", f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \'-\''
        if name in names:
            yield f"{where}.name", f'Duplicate value: "{name}"'
        names.add(name)
        if not container.get("image"):
            yield f"{where}.image", "Required value"
        for j, variable in enumerate(container.get("env") or []):
            if not _ENV_NAME.fullmatch(variable.get("name", "")):
                yield f"{where}.env[{j}].name", f'Invalid value: "{variable.get("name", "")}": a valid environment variable name must consist of alphabetic characters, digits, \'_\', \'-\', or \'.\''
        for j, mount in enumerate(container.get("volumeMounts") or []):
            if mount.get("name") not in volumes:
                yield f"{where}.volumeMounts[{j}].name", f'Not found: "{mount.get("name", "")}"'
            if ".." in str(mount.get("subPath", "")).split("/") or str(mount.get("subPath", "")).startswith("/"):
                yield f"{where}.volumeMounts[{j}].subPath", f'Invalid value: "{mount["subPath"]}": must not contain \'..\''
        yield from _resource_causes(f"{where}.resources", container.get("resources") or {})


def _resource_causes(where: str, resources: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, given in (("requests", requests), ("limits", limits)):
        for name, value in given.items():
            amount = quantity(value)
            if amount < 0:
                yield f"{where}.{kind}[{name}]", f'Invalid value: "{value}": must be greater than or equal to 0'
            if _extended(name) and amount != int(amount):
                yield f"{where}.{kind}[{name}]", f'Invalid value: "{value}": must be an integer'
    for name, value in requests.items():
        if _extended(name) and name not in limits:
            yield f"{where}.limits", "Required value: Limit must be set for non overcommitable resources"
        elif _extended(name) and quantity(value) != quantity(limits[name]):
            yield f"{where}.requests", f'Invalid value: "{value}": must be equal to {name} limit'
        elif name in limits and quantity(value) > quantity(limits[name]):
            yield f"{where}.requests", f'Invalid value: "{value}": must be less than or equal to {name} limit'


def _extended(name: str) -> bool:
    return "/" in name and not name.startswith("kubernetes.io/")


# ---------------------------------------------------------------------- defaults


def fill_in(resource: Resource, obj: dict[str, Any]) -> None:
    """What the API server adds to a new object."""
    if resource.plural == "pods":
        _fill_in_pod(obj)
    elif resource.plural == "secrets":
        obj.setdefault("type", "Opaque")
        for key, value in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
    elif resource.plural == "namespaces":
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}
    elif resource.plural == "nodes":
        # Until the node controller has looked at its conditions.
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        spec = obj.setdefault("spec", {})
        spec["taints"] = [*(spec.get("taints") or []), taint]
        obj.setdefault("status", {})
        capacity = obj["status"].get("capacity")
        if capacity:
            obj["status"].setdefault("allocatable", dict(capacity))
    elif resource.plural == "services":
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("clusterIP", "10.0.0.1")
        for port in spec.get("ports", []):
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port["port"])
        obj["status"] = {"loadBalancer": {}}
    elif resource.plural == "persistentvolumeclaims":
        obj["status"] = {"phase": "Pending"}


def _fill_in_pod(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    for key, value in {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "serviceAccount": spec.get("serviceAccountName", "default"),
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
    }.items():
        spec.setdefault(key, value)
    for container in spec["containers"]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "Always" if container["image"].endswith(":latest") else "IfNotPresent")
        resources = container.setdefault("resources", {})
        for kind in ("requests", "limits"):
            if resources.get(kind):
                resources[kind] = {name: str(value) for name, value in resources[kind].items()}
        for name, value in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, value)
    tolerations = spec.setdefault("tolerations", [])
    for taint in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{taint}"
        if not any(t.get("key") in {None, "", key} and t.get("effect") in {None, "", "NoExecute"} for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    obj["status"] = {"phase": "Pending", "qosClass": _qos(spec)}


def _qos(spec: Mapping[str, Any]) -> str:
    named = [container.get("resources") or {} for container in spec["containers"]]
    asked = [{**r.get("requests", {}), **r.get("limits", {})} for r in named]
    if not any(name in {"cpu", "memory"} for one in asked for name in one):
        return "BestEffort"
    whole = all(
        {"cpu", "memory"} <= set(r.get("limits", {})) and all(r.get("requests", {}).get(k) == r["limits"][k] for k in ("cpu", "memory"))
        for r in named
    )
    return "Guaranteed" if whole else "Burstable"


# ---------------------------------------------------------------------- changes

_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")


def check_change(resource: Resource, old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """What may not change. (Status is left out of it: the caller has put the old one in.)"""
    check_metadata(resource, new["metadata"])
    name = new["metadata"]["name"]
    if resource.plural == "pods" and _fixed(old) != _fixed(new):
        raise invalid(resource, name, [("spec", "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)")])  # fmt: skip
    if resource.plural == "secrets":
        if new.get("type") != old.get("type"):
            raise invalid(resource, name, [("type", f'Invalid value: "{new.get("type")}": field is immutable')])
        if old.get("immutable") and old.get("data") != new.get("data"):
            raise invalid(resource, name, [("data", "Forbidden: field is immutable when `immutable` is set")])
        causes = list(_secret_causes(new))
        if causes:
            raise invalid(resource, name, causes)


def _fixed(pod: Mapping[str, Any]) -> Any:
    spec = {key: value for key, value in pod["spec"].items() if key not in _MAY_CHANGE}
    spec["containers"] = [{key: value for key, value in one.items() if key != "image"} for one in spec["containers"]]
    return spec
