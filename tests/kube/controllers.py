"""What a cluster's controllers do behind the API server, a moment after each change.

The `default` ServiceAccount of a namespace, garbage collection by owners, the end of a namespace, and the taints by
which a node's conditions drive pods away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kube.pods import PODS
from tests.kube.resources import BY_PLURAL, RESOURCES
from tests.kube.store import Change, Item, Store, stamp
from tests.kube.verbs import NAMESPACES, Verbs

NODES = BY_PLURAL["nodes"]
ACCOUNTS = BY_PLURAL["serviceaccounts"]
PREFIX = "node.kubernetes.io/"


class Controllers:
    """``delay_s``: how long after a change. They run in the server's thread."""

    def __init__(self, store: Store, verbs: Verbs, delay_s: float) -> None:
        self._store = store
        self._verbs = verbs
        self._delay_s = delay_s
        self._planned: set[asyncio.TimerHandle] = set()
        store.listeners.append(self._heed)

    def close(self) -> None:
        for handle in self._planned:
            handle.cancel()
        self._planned.clear()

    def _later(self, act: Any, *args: Any, delay_s: float | None = None) -> None:
        def run() -> None:
            self._planned.discard(handle)
            act(*args)

        handle = asyncio.get_running_loop().call_later(self._delay_s if delay_s is None else delay_s, run)
        self._planned.add(handle)

    def _heed(self, change: Change) -> None:
        item, resource = change.after, change.resource
        if item is None:
            assert change.before is not None
            self._later(self._collect, change.before.uid)
            self._later(self._end_namespace, change.before.namespace)
        elif resource is NAMESPACES:
            if change.before is None:
                self._give_account(item.name)
            self._later(self._empty_namespace, item.name)
        elif resource is NODES:
            self._later(self._taint, item.name)
        elif change.before is None:
            owners = item.obj["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in self._store.by_uid for owner in owners):
                self._later(self._collect, owners[0]["uid"])
        elif resource is PODS and not change.before.obj["spec"].get("nodeName") and (node := item.obj["spec"].get("nodeName")):
            self._later(self._drive_out, node)

    # ------------------------------------------------------------------ namespaces

    def _give_account(self, namespace: str) -> None:
        self._store.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})

    def _empty_namespace(self, name: str) -> None:
        there = self._store.find(NAMESPACES, "", name)
        if there is None or "deletionTimestamp" not in there.obj["metadata"]:
            return
        for resource in RESOURCES:
            if resource.namespaced:
                for item in self._store.items(resource, name):
                    self._verbs.delete(item, {})
        self._end_namespace(name)

    def _end_namespace(self, name: str) -> None:
        there = self._store.find(NAMESPACES, "", name) if name else None
        if there is None or "deletionTimestamp" not in there.obj["metadata"]:
            return
        if not any(True for resource in RESOURCES if resource.namespaced for _ in self._store.items(resource, name)):
            self._store.remove(there)

    # ------------------------------------------------------------------ owners

    def _collect(self, uid: str) -> None:
        """Delete what had this owner and has none left."""
        for resource in RESOURCES:
            for item in self._store.items(resource):
                owners = item.obj["metadata"].get("ownerReferences") or []
                if any(owner["uid"] == uid for owner in owners) and not any(o["uid"] in self._store.by_uid for o in owners):
                    self._verbs.delete(item, {})

    # ------------------------------------------------------------------ nodes

    def _taint(self, name: str) -> None:
        """Bring a node's taints into line with its conditions and with `spec.unschedulable`."""
        node = self._store.find(NODES, "", name)
        if node is None:
            return
        wanted = [(f"{PREFIX}unschedulable", "NoSchedule")] if node.obj["spec"].get("unschedulable") else []
        if ill := _illness(node.obj):
            wanted += [(f"{PREFIX}{ill}", "NoSchedule"), (f"{PREFIX}{ill}", "NoExecute")]
        ours = {f"{PREFIX}{name}" for name in ("unschedulable", "not-ready", "unreachable")}
        old = node.obj["spec"].get("taints") or []
        kept = [t for t in old if t["key"] not in ours or (t["key"], t["effect"]) in wanted]
        there = {(t["key"], t["effect"]) for t in kept}
        added = [
            {"key": key, "effect": effect, **({"timeAdded": stamp()} if effect == "NoExecute" else {})}
            for key, effect in wanted
            if (key, effect) not in there
        ]
        if added or len(kept) != len(old):
            spec = {key: value for key, value in node.obj["spec"].items() if key != "taints"}
            self._store.replace(node, {**node.obj, "spec": {**spec, **({"taints": [*kept, *added]} if kept or added else {})}})
        self._drive_out(name)

    def _drive_out(self, name: str) -> None:
        """Delete the pods that don't tolerate a NoExecute taint of their node, each when its time is up."""
        node = self._store.find(NODES, "", name)
        taints = [t for t in (node.obj["spec"].get("taints") or [] if node else []) if t["effect"] == "NoExecute"]
        if not taints:
            return
        now = datetime.now(UTC)
        for pod in [*self._store.items(PODS)]:
            if pod.obj["spec"].get("nodeName") != name or "deletionTimestamp" in pod.obj["metadata"]:
                continue
            if (stay_s := _stays_s(pod, taints, now)) is None:
                continue
            if stay_s <= 0:
                self._verbs.delete(pod, {})
            else:
                self._later(self._drive_out, name, delay_s=stay_s)


def _illness(node: Mapping[str, Any]) -> str:
    """Which taint a node's Ready condition asks for; "" for none."""
    ready = next((c["status"] for c in node.get("status", {}).get("conditions") or [] if c["type"] == "Ready"), "True")
    return {"True": "", "False": "not-ready"}.get(ready, "unreachable")


def _stays_s(pod: Item, taints: list[dict[str, Any]], now: datetime) -> float | None:
    """How long the pod may stay yet; None for ever."""
    ends: list[float] = []
    for taint in taints:
        fitting = [t for t in pod.obj["spec"].get("tolerations") or [] if _tolerates(t, taint)]
        if not fitting:
            return 0.0
        since = taint.get("timeAdded")
        age_s = 0.0
        if since:
            age_s = (now - datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)) / timedelta(seconds=1)
        ends += [t["tolerationSeconds"] - age_s for t in fitting if t.get("tolerationSeconds") is not None]
    return min(ends) if ends else None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("key") not in {None, "", taint["key"]}:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
