"""Names and labels of our objects: from them alone it is known what an object is for, also after a restart.

The names of a start are always the same, so that whoever creates an object twice meets the first one. Labels are for
people and selectors, in the form that Kubernetes allows; annotations hold the same exactly, and are what is read back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.core.units import WorkloadId

DOMAIN: Final = "gpufair.io"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "gpufair"
WORKLOAD: Final = f"{DOMAIN}/workload"
INCARNATION: Final = f"{DOMAIN}/incarnation"
RANK: Final = f"{DOMAIN}/rank"
POOL: Final = f"{DOMAIN}/pool"
ALLOCATION: Final = f"{DOMAIN}/allocation"
USER: Final = f"{DOMAIN}/user"
KIND: Final = f"{DOMAIN}/kind"
RESOURCE: Final = f"{DOMAIN}/resource"  # of a node of the core: which resource its GPUs are
# On pods of others, beside the allocation
MIN_RUNTIME: Final = f"{DOMAIN}/min-runtime"
GANG: Final = f"{DOMAIN}/gang"
GANG_SIZE: Final = f"{DOMAIN}/gang-size"
RESUMABLE: Final = f"{DOMAIN}/resumable"
SERVICE: Final = f"{DOMAIN}/service"  # annotation of our pods: of which state folder the service is that made it
LONGEST: Final = 63  # of a label's value, and of a name that is a host's, too
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
# Python reads no number of thousands of digits, which an annotation may have; nobody starts anything so often.
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_DNS: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class NotOurs(GpufairError):
    """An object is none of ours, or somebody has changed what says whose it is."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """What one pod is: a start of a workload, on its node with this rank."""

    workload: WorkloadId
    incarnation: int
    rank: int = 0


def pod_name(key: PodKey) -> str:
    """Of the pod and its secret."""
    return _named(key.workload, f"-{key.incarnation}-{key.rank}")


def service_name(workload: WorkloadId, incarnation: int) -> str:
    """Of the headless service by which the pods of a gang find each other."""
    return _named(workload, f"-{incarnation}")


def labels(key: PodKey, pool: str, allocation: str, user: str, kind: str = "") -> dict[str, str]:
    """Of everything that belongs to one pod."""
    return {
        MANAGED_BY: MANAGER,
        WORKLOAD: label_value(key.workload),
        INCARNATION: str(key.incarnation),
        RANK: str(key.rank),
        POOL: label_value(pool),
        ALLOCATION: label_value(allocation),
        USER: label_value(user),
        **({KIND: kind} if kind else {}),
    }


def notes(key: PodKey, pool: str, allocation: str, user: str) -> dict[str, str]:
    """The same as annotations, exactly."""
    return {
        WORKLOAD: key.workload,
        INCARNATION: str(key.incarnation),
        RANK: str(key.rank),
        POOL: pool,
        ALLOCATION: allocation,
        USER: user,
    }


def selector(pool: str) -> str:
    """Of all our pods of a pool, for lists and watches."""
    return f"{MANAGED_BY}={MANAGER},{POOL}={label_value(pool)}"


def is_ours(obj: Mapping[str, Any], pool: str | None = None) -> bool:
    """Whether we made it (for this pool)."""
    found = _mapping(obj, "labels")
    return found.get(MANAGED_BY) == MANAGER and (pool is None or found.get(POOL) == label_value(pool))


def was_ours(obj: Mapping[str, Any], pool: str) -> bool:
    """Whether it says, by annotations alone, that we made it for this pool: somebody has taken a label off it."""
    noted = _mapping(obj, "annotations")
    return not is_ours(obj, pool) and WORKLOAD in noted and noted.get(POOL) == pool


def of_another(pod: Mapping[str, Any], service: str) -> bool:
    """Whether a pod says that a service with another state folder has made it."""
    return str(_mapping(pod, "annotations").get(SERVICE) or service) != service


def key_of(obj: Mapping[str, Any]) -> PodKey:
    """Which pod an object of ours is, or belongs to.

    Raises:
        NotOurs: It is none of ours, or was relabelled: nothing may be concluded from it.
    """
    name = obj.get("metadata", {}).get("name", "")
    if not is_ours(obj):
        raise NotOurs(f"{name!r} has no label {MANAGED_BY}={MANAGER}")
    noted, labelled = _mapping(obj, "annotations"), _mapping(obj, "labels")
    workload, incarnation, rank = (noted.get(what, labelled.get(what, "")) for what in (WORKLOAD, INCARNATION, RANK))
    if not (workload and _NUMBER.fullmatch(incarnation) and _NUMBER.fullmatch(rank)):
        raise NotOurs(f"{name!r} does not say which workload, incarnation and rank it is")
    key = PodKey(WorkloadId(workload), int(incarnation), int(rank))
    if labelled.get(WORKLOAD) != label_value(workload) or name not in {
        pod_name(key),
        service_name(key.workload, key.incarnation),
    }:
        raise NotOurs(
            f"{name!r} says that it is {workload[:LONGEST]}, incarnation {incarnation}, rank {rank}, which has another name"
        )
    if labelled.get(POOL) != label_value(noted.get(POOL, labelled.get(POOL, ""))):
        raise NotOurs(f"{name!r} has the label {POOL}={labelled.get(POOL)}, and was made for another pool")
    return key


@lru_cache(maxsize=4096)
def label_value(text: str) -> str:
    """``text`` as the value of a label: as it is where that is allowed, else recognisable and still unique.

    Examples:
        >>> label_value("ada"), label_value("")
        ('ada', '')
        >>> label_value("language/speech")
        'language.speech-07c76081'
    """
    if not text or _LABEL.fullmatch(text):
        return text
    clean = re.sub(r"[^A-Za-z0-9._-]+", ".", text).strip("._-")
    return f"{clean[: LONGEST - 9].rstrip('._-')}-{_digest(text)}".lstrip("-")


def _named(workload: WorkloadId, rest: str) -> str:
    """``gpufair-WORKLOAD-…`` in at most 63 characters of a host's name."""
    name = f"{MANAGER}-{workload}{rest}"
    if _DNS.fullmatch(name):
        return name
    # Two ids that differ in capitals or in what is no letter must not meet.
    clean = re.sub(r"[^a-z0-9]+", "-", workload.lower()).strip("-")
    room = LONGEST - len(f"{MANAGER}--{'0' * 8}{rest}")
    return f"{MANAGER}-{clean[:room].rstrip('-')}-{_digest(workload)}{rest}".replace("--", "-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _mapping(obj: Mapping[str, Any], what: str) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get(what) or {}
