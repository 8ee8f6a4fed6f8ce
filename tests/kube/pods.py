"""Binding, graceful deletion and eviction, as the API server does them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kube.answers import Refused, conflict, invalid
from tests.kube.matching import by_label_selector
from tests.kube.resources import BY_PLURAL
from tests.kube.store import Item, Store, stamp

PODS = BY_PLURAL["pods"]
BUDGETS = BY_PLURAL["poddisruptionbudgets"]
ENDED = frozenset({"Succeeded", "Failed"})


def bind(store: Store, namespace: str, name: str, binding: Mapping[str, Any]) -> None:
    target = binding.get("target") or {}
    if target.get("kind") not in {None, "", "Node"}:
        raise invalid(PODS, name, [("target.kind", f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')])
    if not target.get("name"):
        # So the API server: what it can't validate here is its own error.
        raise Refused(500, "target.name: Required value", "")
    pod = store.get(PODS, namespace, name)
    if pod.obj["metadata"].get("deletionTimestamp"):
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod.obj["spec"].get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{node}"')
    metadata = {**pod.obj["metadata"]}
    if added := (binding.get("metadata") or {}).get("annotations"):
        metadata["annotations"] = {**metadata.get("annotations", {}), **added}
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp()}
    others = [c for c in pod.obj["status"].get("conditions", []) if c["type"] != "PodScheduled"]
    store.replace(
        pod,
        {
            **pod.obj,
            "metadata": metadata,
            "spec": {**pod.obj["spec"], "nodeName": target["name"]},
            "status": {**pod.obj["status"], "conditions": [*others, condition]},
        },
    )


def _unbindable(name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return Refused(409, message, details={"name": name, "kind": "pods/binding"})


def check_preconditions(item: Item, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions") or {}
    metadata = item.obj["metadata"]
    for field, key in (("uid", "uid"), ("resourceVersion", "resourceVersion")):
        if wanted.get(field) not in {None, metadata[key]}:
            label = "UID" if field == "uid" else "ResourceVersion"
            told = f"the {label} in the precondition ({wanted[field]}) does not match the {label} in record ({metadata[key]})"
            raise conflict(item.resource, item.name, f"{told}. The object might have been deleted and then recreated")


def delete(store: Store, item: Item, options: Mapping[str, Any]) -> Item:
    """The pod as it is then: gone, or with a deletionTimestamp that a second delete can only bring nearer."""
    metadata, spec, asked = item.obj["metadata"], item.obj["spec"], options.get("gracePeriodSeconds")
    if asked is not None and asked < 0:
        raise invalid(PODS, item.name, [("gracePeriodSeconds", f"Invalid value: {asked}: must be a non-negative integer")])
    since = datetime.now(UTC)
    if "deletionTimestamp" in metadata:
        running = int(metadata.get("deletionGracePeriodSeconds", 0))
        if asked is None or asked >= running > 0:
            return item
        grace = int(asked)
        since = datetime.strptime(metadata["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) - timedelta(seconds=running)
    elif not spec.get("nodeName") or item.obj["status"].get("phase") in ENDED:
        grace = 0
    else:
        grace = int(spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked)
    marked = {**metadata, "deletionTimestamp": stamp(since + timedelta(seconds=grace)), "deletionGracePeriodSeconds": grace}
    # A pod that goes at once is marked before, too: watches see both.
    going = store.replace(item, {**item.obj, "metadata": marked})
    return going if grace or metadata.get("finalizers") else store.remove(going)


def check_eviction(store: Store, pod: Item) -> None:
    """Refuses with 429 where a PodDisruptionBudget has no room."""
    if pod.obj["status"].get("phase") in {*ENDED, "Pending"}:
        return
    for budget in store.items(BUDGETS, pod.namespace):
        spec = budget.obj.get("spec") or {}
        chosen = by_label_selector(spec.get("selector") or {})
        if not chosen(pod.obj):
            continue
        pods = [one for one in store.items(PODS, pod.namespace) if chosen(one.obj)]
        healthy = sum(_healthy(one) for one in pods)
        if "maxUnavailable" in spec:
            needed = len(pods) - _part(spec["maxUnavailable"], len(pods))
        else:
            needed = _part(spec.get("minAvailable", 1), len(pods))
        if healthy <= needed:
            why = f"The disruption budget {budget.name} needs {needed} healthy pods and has {healthy} currently"
            raise Refused(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
            )


def _healthy(pod: Item) -> bool:
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.obj["status"].get("conditions", []))
    return ready and "deletionTimestamp" not in pod.obj["metadata"]


def _part(value: Any, whole: int) -> int:
    """A number, or a share of ``whole`` in per cent, rounded up."""
    if isinstance(value, str):
        return -(-int(value.rstrip("%")) * whole // 100)
    return int(value)
