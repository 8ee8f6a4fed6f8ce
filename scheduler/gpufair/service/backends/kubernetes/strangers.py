"""Pods that carry our labels and that no start of this service has made: whose they are, and of which nobody can tell.

An annotation may hold any text, and anybody with rights in our namespace may change one. A pod that cannot be read is
concluded from in no way: it keeps what it holds, all others are found again, and its node says what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpufair.core.errors import UnknownWorkload
from gpufair.core.state import State
from gpufair.service.backends.kubernetes.names import NotOurs, PodKey, key_of, of_another
from gpufair.service.backends.kubernetes.watch import Object

SHOWN: Final = 10  # sentences that stand at one node
NOBODYS: Final = "it keeps its GPUs until it is deleted, and nobody uses them"
_log = logging.getLogger(__name__)


class Strangers:
    """Pods of our namespace, by name. ``service``: who may end those that it made; "": all are taken for its own."""

    def __init__(self, service: str = "") -> None:
        self._service = service
        self._pods: dict[str, Object] = {}
        self._wrong: dict[str, tuple[str, str]] = {}  # its node and what is wrong, of those that cannot be read

    def found(self, pod: Object) -> None:
        """It is there, and no life is known that it belongs to."""
        self._pods[_name(pod)] = pod

    def anothers(self, name: str) -> bool:
        """Whether the one of this name is there, and another service's."""
        pod = self._pods.get(name)
        return pod is not None and bool(self._service) and of_another(pod, self._service)

    def take(self, name: str) -> Object | None:
        """It is somebody's now; None: there is none of this name."""
        self._wrong.pop(name, None)
        return self._pods.pop(name, None)

    def read(self) -> dict[str, PodKey]:
        """Which start each of them is, of those that can be read."""
        keys: dict[str, PodKey] = {}
        for name, pod in self._pods.items():
            if (key := self.judge(pod, NOBODYS)) is not None:
                keys[name] = key
        return keys

    def judge(self, pod: Object, so: str) -> PodKey | None:
        """Which start a pod says that it is; None: that cannot be read, and ``so`` that is what follows."""
        name = _name(pod)
        try:
            key = key_of(pod)
        except NotOurs as err:
            self._complain(pod, f"pod {err}; {so}")
            return None
        except Exception:  # noqa: BLE001  # whatever stands on one pod must not hide the others
            if name not in self._wrong:
                _log.exception("the labels of pod %s cannot be read", name)
            self._complain(pod, f"pod {name!r} has labels that cannot be read; {so}")
            return None
        if self._service and of_another(pod, self._service):
            self._complain(
                pod,
                f"pod {name!r} was made by a service with another state folder; {so}; give each service a namespace or a pool name of its own",
            )
            return None
        self._wrong.pop(name, None)
        return key

    def forget(self, name: str) -> None:
        """It is gone."""
        self.take(name)

    def of(self, starts: Iterable[tuple[str, int]]) -> set[str]:
        """Uids of those that are one of these starts (workload, incarnation)."""
        known = frozenset(starts)
        return {_uid(self._pods[name]) for name, key in self.read().items() if (key.workload, key.incarnation) in known}

    def odd(self) -> dict[str, list[str]]:
        """What is wrong, by node of the cluster."""
        by_node: dict[str, list[str]] = {}
        for _, (node, text) in sorted(self._wrong.items()):
            by_node.setdefault(node, []).append(text)
        return {node: texts[:SHOWN] for node, texts in by_node.items()}

    def _complain(self, pod: Object, text: str) -> None:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if self._wrong.get(_name(pod)) != (node, text):
            self._wrong[_name(pod)] = (node, text)
            _log.warning("%s", text)


def home_of(state: State, key: PodKey) -> str:
    """On which node of the core a start is to run, or runs; "": it is over."""
    try:
        held = state.workload(key.workload).held
    except UnknownWorkload:
        return ""
    if held is None or held.incarnation != key.incarnation or key.rank >= len(held.leases):
        return ""
    return str(held.leases[key.rank].node)


def said_of(events: Iterable[Object]) -> dict[str, list[Object]]:
    """Events, by the uid of their pod, the oldest first."""
    by_uid: dict[str, list[Object]] = {}
    for event in sorted(events, key=_version):
        by_uid.setdefault(str((event.get("involvedObject") or {}).get("uid", "")), []).append(event)
    return by_uid


def _version(event: Object) -> tuple[int, str]:
    version = str(event["metadata"].get("resourceVersion") or "")
    return len(version), version


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["uid"])
