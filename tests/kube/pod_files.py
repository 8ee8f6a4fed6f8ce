"""What a container finds: its environment, its folders, its command. A process of this machine stands for it."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.client import Gone, KubeletClient, path_of

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


class NotYet(Exception):
    """A volume or a variable can't be had now; ``reason`` as a kubelet names it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass
class Container:
    """``mounts``: path in the container → folder or file here. Paths in the command and the environment are rewritten."""

    name: str
    command: list[str]
    env: dict[str, str]
    folder: Path
    mounts: dict[str, Path] = field(default_factory=dict)


async def volume_folders(
    client: KubeletClient,
    pod: Mapping[str, Any],
    root: Path,
    claims: Mapping[str, Path],
) -> dict[str, Path]:
    """A folder for each volume of the pod. Raises NotYet where one has to be waited for."""
    folders: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        name: str = volume["name"]
        folder = root / "volumes" / name
        if claim := volume.get("persistentVolumeClaim"):
            if claim["claimName"] not in claims:
                raise NotYet("FailedMount", f'Unable to attach or mount volumes: persistentvolumeclaim "{claim["claimName"]}" is not bound')
            folder = claims[claim["claimName"]]
        elif host := volume.get("hostPath"):
            folder = Path(host["path"])
        elif (secret := volume.get("secret")) or (config := volume.get("configMap")):
            plural, about = ("secrets", secret) if secret else ("configmaps", config)
            key = about.get("secretName") or about.get("name")
            try:
                obj = await client.call("GET", path_of(plural, pod["metadata"]["namespace"], key))
            except Gone as gone:
                if about.get("optional"):
                    obj = {}
                else:
                    raise NotYet("FailedMount", f'MountVolume.SetUp failed for volume "{name}" : {plural[:-1]} "{key}" not found') from gone
            _write_keys(folder, obj, about.get("items"), encoded=plural == "secrets")
        elif downward := volume.get("downwardAPI"):
            for item in downward.get("items") or []:
                _write(folder / item["path"], _field(pod, item["fieldRef"]["fieldPath"]).encode())
        elif "emptyDir" not in volume:
            raise NotYet("FailedMount", f"the fake node knows no volume like {volume}")
        folder.mkdir(parents=True, exist_ok=True)
        folders[name] = folder
    return folders


def _write_keys(folder: Path, obj: Mapping[str, Any], items: Sequence[Mapping[str, Any]] | None, *, encoded: bool) -> None:
    data: Mapping[str, str] = obj.get("data") or {}
    paths = {item["key"]: item["path"] for item in items} if items else {key: key for key in data}
    for key, path in paths.items():
        if key not in data:
            raise NotYet("FailedMount", f"references non-existent key: {key}")
        _write(folder / path, base64.b64decode(data[key]) if encoded else data[key].encode())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


async def container(
    client: KubeletClient,
    pod: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    folders: Mapping[str, Path],
    folder: Path,
    environment: Mapping[str, str],
    entrypoint: Sequence[str],
) -> Container:
    """Raises NotYet where a Secret of the environment is not there."""
    mounts: dict[str, Path] = {}
    for mount in spec.get("volumeMounts") or []:
        sub = expand(mount["subPathExpr"], environment) if "subPathExpr" in mount else mount.get("subPath", "")
        place = folders[mount["name"]] / sub if sub else folders[mount["name"]]
        if not place.exists():
            place.mkdir(parents=True)
        mounts[mount["mountPath"].rstrip("/")] = place
    env = dict(environment)
    env["HOSTNAME"] = pod["spec"].get("hostname") or pod["metadata"]["name"]
    for variable in await _variables(client, pod, spec):
        env[variable[0]] = expand(variable[1], env)
    env = {key: here(value, mounts) for key, value in env.items()}
    words = [*(spec.get("command") or entrypoint), *(spec.get("args") or [])]
    command = [here(expand(word, env), mounts) for word in words]
    work = spec.get("workingDir")
    return Container(spec["name"], command, env, Path(here(work, mounts)) if work else folder, mounts)


async def _variables(client: KubeletClient, pod: Mapping[str, Any], spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    namespace = pod["metadata"]["namespace"]
    for source in spec.get("envFrom") or []:
        plural, about = ("secrets", source["secretRef"]) if "secretRef" in source else ("configmaps", source["configMapRef"])
        found += [(source.get("prefix", "") + key, value) for key, value in (await _data(client, plural, namespace, about)).items()]
    for variable in spec.get("env") or []:
        source = variable.get("valueFrom")
        if source is None:
            found.append((variable["name"], variable.get("value", "")))
        elif "fieldRef" in source:
            found.append((variable["name"], _field(pod, source["fieldRef"]["fieldPath"])))
        elif "secretKeyRef" in source or "configMapKeyRef" in source:
            plural, about = ("secrets", source["secretKeyRef"]) if "secretKeyRef" in source else ("configmaps", source["configMapKeyRef"])
            data = await _data(client, plural, namespace, about)
            if about["key"] in data:
                found.append((variable["name"], data[about["key"]]))
            elif not about.get("optional"):
                raise NotYet("CreateContainerConfigError", f"couldn't find key {about['key']} in {plural[:-1]} {namespace}/{about['name']}")
        elif "resourceFieldRef" in source:
            resources = spec.get("resources") or {}
            kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
            found.append((variable["name"], str((resources.get(kind) or {}).get(name, 0))))
    return found


async def _data(client: KubeletClient, plural: str, namespace: str, about: Mapping[str, Any]) -> dict[str, str]:
    try:
        obj = await client.call("GET", path_of(plural, namespace, about["name"]))
    except Gone as gone:
        if about.get("optional"):
            return {}
        raise NotYet("CreateContainerConfigError", f'{plural[:-1]} "{about["name"]}" not found') from gone
    data: dict[str, str] = obj.get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()} if plural == "secrets" else dict(data)


def _field(pod: Mapping[str, Any], path: str) -> str:
    """`metadata.name`, `metadata.labels['KEY']`, `spec.nodeName`, `status.podIP` …"""
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, Mapping) else ""
    return str(value)


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` of variables that are known; `$$` is a dollar."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


def here(text: str, mounts: Mapping[str, Path]) -> str:
    """Each path of the container's mounts, as a whole or with what follows, becomes that of this machine."""
    # In one go: where this machine has a mount may itself begin with another one's path.
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w.-])", lambda found: str(mounts[found[1]]), text) if paths else text


def base_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What the image gives: a search path, and what the test says."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **extra}
