"""What the API server says of itself: its version and its resources. (`kubectl` asks for them first.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kube.resources import RESOURCES

VERSION = {"major": "1", "minor": "20", "gitVersion": "v1.20.2-fake", "platform": "linux/amd64"}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def described(method: str, path: str) -> Mapping[str, Any] | None:
    """The answer, or None where the path asks for something else."""
    if method != "GET":
        return None
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return VERSION
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _groups()]}
    if parts == ["api", "v1"]:
        return _resources("", "v1")
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in _groups():
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if len(parts) == 3 and parts[0] == "apis" and parts[1] in _groups():
        return _resources(parts[1], parts[2])
    return None


def _groups() -> dict[str, str]:
    return {resource.group: resource.version for resource in RESOURCES if resource.group}


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/{_groups()[name]}", "version": _groups()[name]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(group: str, version: str) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        about = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
        listed.append({"name": resource.plural, **about, "verbs": _VERBS})
        listed += [{"name": f"{resource.plural}/{sub}", **about, "verbs": ["create"]} for sub in resource.subresources]
        if resource.has_status:
            listed.append({"name": f"{resource.plural}/status", **about, "verbs": ["get", "patch", "update"]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}" if group else version, "resources": listed}
