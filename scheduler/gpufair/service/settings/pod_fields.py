"""Parts of a pod as people write them in a configuration, checked before a cluster would refuse each pod.

Each check takes what was written and answers why it is wrong, "" if it is not. Values are plain ones (``not_plain``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from gpufair.service.settings import pod_values as value
from gpufair.service.settings.node_options import MAX_CPUS
from gpufair.service.settings.pod_values import DNS_NAME, LABEL_KEY, LABEL_VALUE, Check, each, wrong_fields
from gpufair.service.settings.quantities import parse_quantity
from gpufair.service.settings.sizes import MAX_SIZE
from gpufair.service.settings.tables import Table, hint, shown

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST: Final = {"cpu": MAX_CPUS, "memory": MAX_SIZE}  # of resources; of others: ``_MOST_OF_ANY``
_MOST_OF_ANY: Final = 1 << 62
# The agent in the pod is Python too, and would be another one.
_PYTHONS: Final = {"PYTHONPATH", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONEXECUTABLE", "PYTHONUSERBASE"}
_TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
_PULL: Final = ("Always", "IfNotPresent", "Never")
_KEY_OF: Final[Mapping[str, Check]] = {"key": value.text, "optional": value.flag}
_VALUE_FROM: Final[Mapping[str, Check]] = {
    "secretKeyRef": value.table_of({"name": value.secret_name, **_KEY_OF}, "name", "key"),
    "configMapKeyRef": value.table_of({"name": value.object_name, **_KEY_OF}, "name", "key"),
    "fieldRef": value.table_of({"fieldPath": value.text, "apiVersion": value.text}, "fieldPath"),
    "resourceFieldRef": value.table_of(
        {"resource": value.text, "containerName": value.text, "divisor": lambda _given: ""}, "resource"
    ),
}
_VARIABLES_FROM: Final[Mapping[str, Check]] = {
    "secretRef": value.table_of({"name": value.secret_name, "optional": value.flag}, "name"),
    "configMapRef": value.table_of({"name": value.object_name, "optional": value.flag}, "name"),
}
_ROOT: Final = value.number(0)
_OF_BOTH: Final[Mapping[str, Check]] = {
    "runAsUser": _ROOT,
    "runAsGroup": _ROOT,
    "runAsNonRoot": value.flag,
    "seLinuxOptions": value.mapping,
    "windowsOptions": value.mapping,
    "seccompProfile": value.table_of(
        {"type": value.one_of("RuntimeDefault", "Unconfined", "Localhost"), "localhostProfile": value.text}, "type"
    ),
    "appArmorProfile": value.table_of(
        {"type": value.one_of("RuntimeDefault", "Unconfined", "Localhost"), "localhostProfile": value.text}, "type"
    ),
}
_OF_PODS: Final[Mapping[str, Check]] = {
    **_OF_BOTH,
    "fsGroup": _ROOT,
    "fsGroupChangePolicy": value.one_of("OnRootMismatch", "Always"),
    "supplementalGroups": value.list_of(_ROOT),
    "supplementalGroupsPolicy": value.one_of("Merge", "Strict"),
    "seLinuxChangePolicy": value.one_of("MountOption", "Recursive"),
    "sysctls": value.list_of(value.table_of({"name": value.text, "value": value.text}, "name", "value")),
}
_CAPABILITIES: Final = value.list_of(value.text)
_OF_CONTAINERS: Final[Mapping[str, Check]] = {
    **_OF_BOTH,
    "privileged": value.flag,
    "allowPrivilegeEscalation": value.flag,
    "readOnlyRootFilesystem": value.flag,
    "capabilities": value.table_of({"add": _CAPABILITIES, "drop": _CAPABILITIES}),
    "procMount": value.one_of("Default"),
}
_TEXTS: Final = value.list_of(value.text)
_DNS: Final[Mapping[str, Check]] = {
    "nameservers": _TEXTS,
    "searches": _TEXTS,
    "options": value.list_of(value.table_of({"name": value.text, "value": value.text}, "name")),
}


def tolerations(table: Table, key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of tolerations, as a pod has them.

    Raises: ConfigError: One is none.
    """
    given = table.raw(key, [])
    if why := value.not_plain(given) or each(wrong_toleration)(given):
        table.fail(f"{key} {why}", key)
    return tuple(dict(one) for one in given)


def wrong_toleration(one: Any) -> str:
    """Of ``tolerations``."""
    for name, said in one.items():
        if name not in _TOLERATION:
            return f"has an unknown field {name!r}{hint(name, _TOLERATION)}; known are {', '.join(_TOLERATION)}"
        if name == "tolerationSeconds":
            if type(said) is not int:
                return f"has tolerationSeconds = {shown(said)}, which is no integer"
        elif not isinstance(said, str):
            return f"has a {name} that is no string"
    if one.get("operator", "Equal") not in {"Equal", "Exists"}:
        return f"has operator = {shown(one['operator'])}; it is Equal or Exists"
    if one.get("effect", "") not in {"", *EFFECTS}:
        return f"has effect = {shown(one['effect'])}; it is one of {', '.join(EFFECTS)}"
    if one.get("key") and LABEL_KEY.fullmatch(one["key"]) is None:
        return f"has key = {shown(one['key'])}, which is no key of a taint"
    if LABEL_VALUE.fullmatch(one.get("value", "")) is None:
        return f"has value = {shown(one['value'])}, which is no value of a taint"
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
    if name in _PYTHONS:
        return f"sets {name}, which would break the agent in the pod; put packages into the image, or set it in the notebook"
    if unknown := set(one) - {"name", "value", "valueFrom"}:
        return f"({name}) has an unknown field {min(unknown)!r}; known are name, value, valueFrom"
    if ("value" in one) == ("valueFrom" in one):
        return f"({name}) needs either a value or valueFrom"
    if "value" in one and not isinstance(one["value"], str):
        return f"({name}) has a value that is no string; put {shown(one['value'])} in quotes"
    if "valueFrom" in one and not (isinstance(one["valueFrom"], dict) and len(one["valueFrom"]) == 1):
        return f'({name}) needs one source in valueFrom, like secretKeyRef = {{ name = "s3", key = "token" }}'
    if "valueFrom" in one and (why := wrong_fields(one["valueFrom"], _VALUE_FROM)):
        return f"({name}): valueFrom {why}"
    return ""


def wrong_variables_from(one: Any) -> str:
    """Of ``envFrom``."""
    sources = [key for key in one if key != "prefix"]
    if len(sources) != 1 or sources[0] not in {"secretRef", "configMapRef"}:
        return 'needs one source: secretRef = { name = "…" } or configMapRef = { name = "…" }'
    if not isinstance(one.get("prefix", ""), str):
        return f"has prefix = {shown(one['prefix'])}, which is no string"
    if why := _VARIABLES_FROM[sources[0]](one[sources[0]]):
        return f"has a wrong {sources[0]}: {why}"
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
                asked = parse_quantity(amount)
            except ValueError as err:
                return f".{what}.{name}: {err}"
            if asked < 0:
                return f".{what}.{name} = {shown(amount)} is below 0"
            if asked > MOST.get(name, _MOST_OF_ANY):
                return f".{what}.{name} = {shown(amount)} is more than any machine has"
            if LABEL_KEY.fullmatch(name) is None:
                return f".{what} has {shown(name)}, which is no name of a resource"
    return ""


def wrong_labels(given: Any) -> str:
    """Of ``labels`` and ``nodeSelector``."""
    if why := wrong_notes(given):
        return why
    bad = next((one for one in given.values() if LABEL_VALUE.fullmatch(one) is None), None)
    return "" if bad is None else f"has the value {shown(bad)}, which is no value of a label"


def wrong_notes(given: Any) -> str:
    """Of ``annotations``."""
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        return 'has to be a table of strings, like { team = "speech" }'
    for key in given:
        if LABEL_KEY.fullmatch(key) is None:
            return f"has the key {shown(key)}, which Kubernetes does not take"
        if key.partition("/")[0].endswith("gpufair.io") or key.startswith("app.kubernetes.io/managed-by"):
            return f"sets {key}, which is the scheduler's own"
    return ""


def wrong_pod_security(given: Any) -> str:
    """Of ``securityContext``."""
    return wrong_fields(given, _OF_PODS) if isinstance(given, dict) else f"= {shown(given)}: expected a table"


def wrong_container_security(given: Any) -> str:
    """Of ``containerSecurityContext``: it may give more rights, but not all of the machine."""
    if not isinstance(given, dict):
        return f"= {shown(given)}: expected a table"
    if given.get("privileged"):
        return "is privileged; such a container sees every GPU of its node, whoever has them"
    return wrong_fields(given, _OF_CONTAINERS)


def wrong_root(pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Of both: root is an operator's choice, which a pod that says both things would not start with."""
    if container.get("runAsUser", pod.get("runAsUser")) == 0 and container.get("runAsNonRoot", pod.get("runAsNonRoot", True)):
        return "has runAsUser = 0, which is root; name another user, or say runAsNonRoot = false beside it if that is meant"
    return ""


def wrong_dns(given: Any) -> str:
    """Of ``dnsConfig``."""
    return wrong_fields(given, _DNS) if isinstance(given, dict) else f"= {shown(given)}: expected a table"


def wrong_alias(one: Any) -> str:
    """Of ``hostAliases``."""
    if why := wrong_fields(one, {"ip": value.text, "hostnames": value.list_of(value.object_name)}, ("ip", "hostnames")):
        return why
    try:
        ipaddress.ip_address(one["ip"])
    except ValueError:
        return f"has ip = {shown(one['ip'])}, which is no address"
    return ""


def choice(*allowed: str) -> Check:
    """One of a few words."""
    return lambda given: "" if isinstance(given, str) and given in allowed else f"= {shown(given)}: expected one of {', '.join(allowed)}"


wrong_pull_policy: Final = choice(*_PULL)
wrong_dns_policy: Final = choice("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def wrong_name(given: Any) -> str:
    """Of names of objects."""
    why = value.object_name(given)
    return f"= {shown(given)}: {why}" if why else ""


def wrong_text(given: Any) -> str:
    """Of images."""
    good = isinstance(given, str) and given and len(given) <= 1024 and not any(char.isspace() for char in given)
    return "" if good else f"= {shown(given)}: expected a name in quotes"
