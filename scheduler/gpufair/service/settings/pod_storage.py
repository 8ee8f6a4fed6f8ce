"""Volumes of a pod template and where they are mounted."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from gpufair.service.settings import pod_values as value
from gpufair.service.settings.pod_values import Check
from gpufair.service.settings.tables import hint, shown

CONFIG_DIR: Final = "/etc/gpufair"  # in each pod: the files of its secret
STATE_DIR: Final = "/run/gpufair"  # the agent's; gone with the pod
SHM: Final = "/dev/shm"  # noqa: S108  # the one folder of /dev that may be another volume
OUR_FOLDERS: Final = (CONFIG_DIR, STATE_DIR, "/tmp")  # noqa: S108  # mounted by us, over what an image has there
SYSTEM_FOLDERS: Final = ("/dev", "/proc", "/sys")
_MODE: Final = value.number(0, 0o777)
_ITEMS: Final = value.list_of(value.table_of({"key": value.text, "path": value.text, "mode": _MODE}, "key", "path"))
_FIELDS_OF_POD: Final = value.list_of(
    value.table_of(
        {"path": value.text, "fieldRef": value.mapping, "resourceFieldRef": value.mapping, "mode": _MODE}, "path"
    )
)
_PROJECTED: Final[Mapping[str, Check]] = {
    "secret": value.table_of({"name": value.secret_name, "items": _ITEMS, "optional": value.flag}, "name"),
    "configMap": value.table_of({"name": value.object_name, "items": _ITEMS, "optional": value.flag}, "name"),
    "downwardAPI": value.table_of({"items": _FIELDS_OF_POD}),
    "serviceAccountToken": lambda _given: "workloads get no access to the cluster",
    "clusterTrustBundle": value.mapping,
}
_CLAIMED: Final = "make a PersistentVolume and a claim of it"
SOURCES: Final[Mapping[str, Check]] = {
    "persistentVolumeClaim": value.table_of({"claimName": value.object_name, "readOnly": value.flag}, "claimName"),
    "emptyDir": value.table_of({"medium": value.one_of("", "Memory", "HugePages"), "sizeLimit": lambda _given: ""}),
    "configMap": value.table_of(
        {"name": value.object_name, "items": _ITEMS, "defaultMode": _MODE, "optional": value.flag}, "name"
    ),
    "secret": value.table_of(
        {"secretName": value.secret_name, "items": _ITEMS, "defaultMode": _MODE, "optional": value.flag}, "secretName"
    ),
    "projected": value.table_of({"sources": value.list_of(value.table_of(_PROJECTED)), "defaultMode": _MODE}, "sources"),
    "downwardAPI": value.table_of({"items": _FIELDS_OF_POD, "defaultMode": _MODE}),
    "hostPath": value.table_of({"path": value.text, "type": value.text}, "path"),
    "nfs": value.table_of({"server": value.text, "path": value.text, "readOnly": value.flag}, "server", "path"),
    "csi": value.mapping,
    "ephemeral": value.table_of({"volumeClaimTemplate": value.mapping}, "volumeClaimTemplate"),
    "image": value.table_of({"reference": value.text, "pullPolicy": value.one_of("Always", "IfNotPresent", "Never")}, "reference"),
    "cephfs": value.mapping,
    "iscsi": value.mapping,
    "fc": value.mapping,
    "rbd": value.mapping,
    "azureFile": value.mapping,
}
_MOUNT: Final = (
    "name", "mountPath", "readOnly", "subPath", "mountPropagation", "recursiveReadOnly",
)  # fmt: skip


def normal_path(path: str) -> str:
    """An absolute path in the one way of writing it: ``//etc/./x/`` is ``/etc/x``."""
    return posixpath.normpath("/" + path.lstrip("/"))


def overlap(one: str, other: str) -> bool:
    """Whether one of two folders is, or is inside, the other. Both are absolute."""
    return inside(one, other) or inside(other, one)


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder, or in it. Both are absolute."""
    path, folder = normal_path(path), normal_path(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def wrong_volume(one: Any) -> str:
    """Of ``volumes``."""
    name = one.get("name")
    if not isinstance(name, str) or value.DNS_LABEL.fullmatch(name) is None:
        return f"has name = {shown(name)}; a volume's name is small letters, digits and '-'"
    if name.startswith(value.OURS):
        return f"is called {name!r}; names that begin with {value.OURS} are the scheduler's own"
    sources = [key for key in one if key != "name"]
    if len(sources) != 1:
        return f'({name}) needs one source, like persistentVolumeClaim = {{ claimName = "data" }}'
    if (check := SOURCES.get(sources[0])) is None:
        known = f"{hint(sources[0], SOURCES)}; known are {', '.join(SOURCES)}. For another kind, {_CLAIMED}"
        return f"({name}) has an unknown source {sources[0]!r}{known}"
    if why := check(one[sources[0]]):
        return f"({name}) has a wrong {sources[0]}: {why}"
    return ""


def wrong_mount(one: Any) -> str:
    """Of ``volumeMounts``."""
    name, path, below = one.get("name"), one.get("mountPath"), one.get("subPath", "")
    if not isinstance(name, str) or not name:
        return "names no volume; add name"
    if unknown := set(one) - set(_MOUNT):
        return f"({name}) has an unknown field {min(unknown)!r}{hint(min(unknown), _MOUNT)}; known are {', '.join(_MOUNT)}"
    if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or ":" in path or normal_path(path) == "/":
        return f"({name}) has mountPath = {shown(path)}; it is an absolute path of a folder"
    if not isinstance(below, str) or below.startswith("/") or ".." in below.split("/"):
        return f"({name}) has subPath = {shown(below)}; it is a path inside of the volume, without '..'"
    if not isinstance(one.get("readOnly", False), bool):
        return f"({name}) has readOnly = {shown(one['readOnly'])}; it is true or false"
    for field, allowed in (
        ("mountPropagation", ("None", "HostToContainer")),
        ("recursiveReadOnly", ("Disabled", "IfPossible", "Enabled")),
    ):
        if field in one and (not isinstance(one[field], str) or one[field] not in allowed):
            return f"({name}) has {field} = {shown(one[field])}; it is one of {', '.join(allowed)}"
    return ""


def wrong_places(volumes: list[Mapping[str, Any]], mounts: list[Mapping[str, Any]]) -> tuple[str, str]:
    """Of all volumes and mounts, each good by itself: the field, and why it is wrong; "" twice if neither is."""
    names = [volume["name"] for volume in volumes]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        return "volumes", f"has two named {twice!r}"
    for mount in mounts:
        name, path = mount["name"], mount["mountPath"]
        if name not in names:
            return "volumeMounts", f"mounts {name!r}, which is not in volumes{hint(name, names)}"
        for ours in OUR_FOLDERS:
            if overlap(path, ours):
                return "volumeMounts", f"mounts {name!r} at {path}; {ours} is the scheduler's own"
        for system in SYSTEM_FOLDERS:
            if inside(path, system) and normal_path(path) != SHM:
                return "volumeMounts", f"mounts {name!r} at {path}; {system} is the system's own (of it, only {SHM} may be another volume)"
    paths = [normal_path(mount["mountPath"]) for mount in mounts]
    if again := next((path for path in paths if paths.count(path) > 1), ""):
        return "volumeMounts", f"mounts two volumes at {again}"
    return "", ""


def claims(volumes: list[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Volumes that are claims: their names, and the claims'."""
    found = ((one["name"], one.get("persistentVolumeClaim")) for one in volumes)
    return [(name, source["claimName"]) for name, source in found if source is not None]
