"""Parts of a pod as people write them in a configuration, checked before a cluster would refuse each pod.

Each check takes what was written and answers why it is wrong, "" if it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpufair.service.settings.quantities import parse_quantity
from gpufair.service.settings.tables import Table, hint, shown

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
DNS_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
LABEL_KEY: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
_MOUNT: Final = ("name", "mountPath", "readOnly", "subPath", "mountPropagation", "recursiveReadOnly")
_PULL: Final = ("Always", "IfNotPresent", "Never")

Check = Callable[[Any], str]


def tolerations(table: Table, key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of tolerations, as a pod has them.

    Raises: ConfigError: One is none.
    """
    given = table.raw(key, [])
    if why := each(wrong_toleration)(given):
        table.fail(f"{key} {why}", key)
    return tuple(dict(one) for one in given)


def each(check: Check) -> Check:
    """A list, of which each element has to pass."""

    def wrong(given: Any) -> str:
        if not isinstance(given, list):
            return f"= {shown(given)}: expected a list"
        found = ((at, check(one) if isinstance(one, dict) else "has to be a table") for at, one in enumerate(given, 1))
        return next((f"number {at} {why}" for at, why in found if why), "")

    return wrong


def wrong_toleration(one: Any) -> str:
    """Of ``tolerations``."""
    for name, value in one.items():
        if name not in _TOLERATION:
            return f"has an unknown field {name!r}{hint(name, _TOLERATION)}; known are {', '.join(_TOLERATION)}"
        if name == "tolerationSeconds":
            if type(value) is not int:
                return f"has tolerationSeconds = {shown(value)}, which is no integer"
        elif not isinstance(value, str):
            return f"has a {name} that is no string"
    if one.get("operator", "Equal") not in {"Equal", "Exists"}:
        return f"has operator = {shown(one['operator'])}; it is Equal or Exists"
    if one.get("effect", "") not in {"", *EFFECTS}:
        return f"has effect = {shown(one['effect'])}; it is one of {', '.join(EFFECTS)}"
    if not one.get("key") and one.get("operator") != "Exists":
        return 'names no key; add one, or operator = "Exists" for every taint'
    if one.get("operator") == "Exists" and one.get("value"):
        return 'has a value, which operator = "Exists" does not look at; leave one of them out'
    if "tolerationSeconds" in one and one.get("effect") != "NoExecute":
        return 'has tolerationSeconds, which are for effect = "NoExecute" only'
    return ""


def wrong_variable(one: Any) -> str:
    """Of ``env``."""
    name = one.get("name")
    if not isinstance(name, str) or ENV_NAME.fullmatch(name) is None:
        return f"has name = {shown(name)}, which is no name of a variable"
    if name.startswith("GPUFAIR_"):
        return f"sets {name}; names that begin with GPUFAIR_ are the scheduler's own"
    if name in {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}:
        return f"sets {name}; which GPUs a pod sees follows from what it was given"
    if unknown := set(one) - {"name", "value", "valueFrom"}:
        return f"({name}) has an unknown field {min(unknown)!r}; known are name, value, valueFrom"
    if ("value" in one) == ("valueFrom" in one):
        return f"({name}) needs either a value or valueFrom"
    if "value" in one and not isinstance(one["value"], str):
        return f"({name}) has a value that is no string; put {shown(one['value'])} in quotes"
    if "valueFrom" in one and not (isinstance(one["valueFrom"], dict) and len(one["valueFrom"]) == 1):
        return f'({name}) needs one source in valueFrom, like secretKeyRef = {{ name = "s3", key = "token" }}'
    return ""


def wrong_variables_from(one: Any) -> str:
    """Of ``envFrom``."""
    sources = [key for key in one if key != "prefix"]
    if len(sources) != 1 or sources[0] not in {"secretRef", "configMapRef"}:
        return 'needs one source: secretRef = { name = "…" } or configMapRef = { name = "…" }'
    ref = one[sources[0]]
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str) or DNS_NAME.fullmatch(ref["name"]) is None:
        return f"has a {sources[0]} without a name of an object in the pool's namespace"
    return ""


def wrong_volume(one: Any) -> str:
    """Of ``volumes``."""
    name = one.get("name")
    if not isinstance(name, str) or DNS_LABEL.fullmatch(name) is None:
        return f"has name = {shown(name)}; a volume's name is small letters, digits and '-'"
    if name.startswith("gpufair-"):
        return f"is called {name!r}; names that begin with gpufair- are the scheduler's own"
    sources = [key for key in one if key != "name"]
    if len(sources) != 1 or not isinstance(one[sources[0]], dict):
        return f'({name}) needs one source, like persistentVolumeClaim = {{ claimName = "data" }}'
    return ""


def wrong_mount(one: Any) -> str:
    """Of ``volumeMounts``."""
    name, path = one.get("name"), one.get("mountPath")
    if not isinstance(name, str) or not name:
        return "names no volume; add name"
    if unknown := set(one) - set(_MOUNT):
        return f"({name}) has an unknown field {min(unknown)!r}; known are {', '.join(_MOUNT)}"
    if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or ":" in path or path.strip("/") == "":
        return f"({name}) has mountPath = {shown(path)}; it is an absolute path of a folder"
    return ""


def wrong_secret_name(one: Any) -> str:
    """Of ``imagePullSecrets``."""
    name = one.get("name")
    if set(one) != {"name"} or not isinstance(name, str) or DNS_NAME.fullmatch(name) is None:
        return 'has to be the name of a secret: { name = "registry" }'
    return ""


def wrong_resources(given: Any) -> str:
    """Of ``resources``: CPUs, memory and the like, but never GPUs."""
    if not isinstance(given, dict):
        return f"= {shown(given)}: expected a table with requests or limits"
    for what, amounts in given.items():
        if what not in {"requests", "limits"}:
            return f"has an unknown field {what!r}; known are requests, limits"
        if not isinstance(amounts, dict):
            return f'.{what} has to be a table of amounts, like {{ memory = "8Gi" }}'
        for name, amount in amounts.items():
            if "gpu" in name.lower() or "/mig-" in name:
                return f".{what} asks for {name}; how many GPUs a pod has is said by gpus of the profile, or at submission"
            try:
                if parse_quantity(amount) < 0:
                    return f".{what}.{name} = {shown(amount)} is below 0"
            except ValueError as err:
                return f".{what}.{name}: {err}"
    return ""


def wrong_labels(given: Any) -> str:
    """Of ``labels`` and ``nodeSelector``."""
    if why := wrong_notes(given):
        return why
    bad = next((value for value in given.values() if LABEL_VALUE.fullmatch(value) is None), None)
    return "" if bad is None else f"has the value {shown(bad)}, which is no value of a label"


def wrong_notes(given: Any) -> str:
    """Of ``annotations``."""
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        return 'has to be a table of strings, like { team = "speech" }'
    for key in given:
        if LABEL_KEY.fullmatch(key) is None:
            return f"has the key {shown(key)}, which Kubernetes does not take"
        if key.partition("/")[0].endswith("gpufair.io") or key.startswith("app.kubernetes.io/managed-by"):
            return f"sets {key}, which is the scheduler's own"
    return ""


def wrong_container_security(given: Any) -> str:
    """Of ``containerSecurityContext``: it may give more rights, but not all of the machine."""
    if not isinstance(given, dict):
        return f"= {shown(given)}: expected a table"
    if given.get("privileged"):
        return "is privileged; such a container sees every GPU of its node, whoever has them"
    return ""


def wrong_pull_policy(given: Any) -> str:
    """Of ``imagePullPolicy``."""
    return "" if given in _PULL else f"= {shown(given)}: expected one of {', '.join(_PULL)}"


def wrong_table(given: Any) -> str:
    """Of what Kubernetes knows better than we do."""
    return "" if isinstance(given, dict) else f"= {shown(given)}: expected a table"


def wrong_text(given: Any) -> str:
    """Of names."""
    good = isinstance(given, str) and given and len(given) <= 1024 and not any(char.isspace() for char in given)
    return "" if good else f"= {shown(given)}: expected a name in quotes"
