"""What a pod is to its backend: where it belongs, what there is of it, and until when it may stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from gpufair.service.backends.kubernetes.manifests import PodOrder


@dataclass(frozen=True, slots=True)
class Place:
    """A node of the core: of the cluster (``host``), with one kind of its GPUs."""

    node: str
    host: str
    resource: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """``until_s``: Unix seconds at which Kubernetes itself ends it; None: after the grace that its pod was made with."""

    until_s: float | None


def sooner(one: Leaving, other: Leaving) -> bool:
    """Whether it asks for an earlier end."""
    return one.until_s is not None and (other.until_s is None or one.until_s < other.until_s)


@dataclass(slots=True)
class Made:
    """What there is of a pod, as far as it is known.

    ``perhaps``: a call to make it was not answered. ``asked_to_go``: the deletion that was asked for.
    """

    uid: str = ""
    published: bool = False
    secret: bool = False
    bound: bool = False
    perhaps: bool = False
    asked_to_go: Leaving | None = None
    order: PodOrder | None = None

    @classmethod
    def of(cls, pod: Mapping[str, Any] | None) -> Self:
        """What can be seen of one that was found."""
        made = cls()
        if pod is not None:
            made.see(pod)
        return made

    def see(self, pod: Mapping[str, Any]) -> None:
        """It was seen."""
        self.uid = str(pod["metadata"].get("uid", ""))
        if (pod.get("spec") or {}).get("nodeName"):
            self.bound = self.secret = self.published = True
