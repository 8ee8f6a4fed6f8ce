"""What the service may do in a cluster, and why: the roles in ``deploy/`` grant this and no more.

Whoever adds a call of the API adds its right here; a test holds the roles to this table, and the backend to the roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpufair.service.backends.kubernetes.asked import Asked


@dataclass(frozen=True, slots=True)
class Right:
    """Some verbs on one resource; a subresource is one of its own."""

    resource: str
    verbs: tuple[str, ...]
    why: str
    group: str = ""

    def covers(self, asked: Asked) -> bool:
        """Whether a call needs no more than this."""
        return asked.resource == self.resource and asked.group == self.group and asked.verb in self.verbs


CLUSTER: Final = (
    Right("nodes", ("list", "watch"), "to know which GPUs there are, and which nodes are cordoned, ill or gone"),
    Right("pods", ("list", "watch"), "to see the GPUs that pods of others hold, which are not given out again"),
)
"""Everywhere: looking only."""

NAMESPACE: Final = (
    Right("pods", ("get",), "to look at a pod whose making was not answered"),
    Right("pods", ("create",), "to make the pods of workloads"),
    Right("pods", ("delete",), "to preempt and to stop: a deletion with a grace"),
    Right("pods", ("patch",), "to label the pod of the service that leads"),
    Right("pods/binding", ("create",), "to put a pod on the node that was decided"),
    # Reading them adds nothing to making pods: a pod may mount each Secret of its namespace.
    Right("secrets", ("get", "create", "delete"), "to give each pod the token that is good for it alone"),
    Right("services", ("create",), "to let the pods of a gang find one another by name"),
    Right("events", ("list", "watch"), "to tell why a pod does not begin"),
    Right(
        "leases", ("get", "create", "update"), "so that one service at a time changes anything", "coordination.k8s.io"
    ),
)
"""In the namespace of a pool's pods, which nothing but these should share."""

OTHERS: Final = (
    Right("pods", ("get", "delete"), "to preempt a pod of somebody's Job when its protection has ended"),
    Right("pods/binding", ("create",), "to put such a pod on the node that was decided"),
    Right("events", ("create",), "to tell at such a pod what it waits for, or what is wrong with what it asks for"),
)
"""In each namespace whose own pods name this scheduler."""


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """As the ``rules`` of a role: one for each resource, in order."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), []).extend(right.verbs)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": sorted(set(one))}
        for (group, resource), one in sorted(verbs.items())
    ]
