"""Reading what the API says of a pod and of the events about it. Nothing is taken to be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpufair.core.units import Instant
from gpufair.service.backends.kubernetes.conditions import instant

Object = Mapping[str, Any]
LONGEST: Final = 400  # characters of what others say


def bound_at(pod: Object) -> Instant | None:
    """Since when a pod has its node; None: it has none yet."""
    status = pod.get("status") or {}
    if not (pod.get("spec") or {}).get("nodeName"):
        return None
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and (at := instant(one.get("lastTransitionTime"))) is not None:
            return at
    return instant(status.get("startTime")) or instant((pod.get("metadata") or {}).get("creationTimestamp"))


def container_state(pod: Object) -> Object:
    """The state of its one container; empty before there is one."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return (statuses[0].get("state") or {}) if statuses else {}


def terminal(pod: Object) -> bool:
    """Whether all of its containers have ended for good, by its phase."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def begun(pod: Object) -> bool:
    """Whether its container runs, or ran."""
    return terminal(pod) or ran(pod)


def ran(pod: Object) -> bool:
    """Whether its container runs, or ran, as far as its node says."""
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or []]
    return any("running" in state or "terminated" in state for state in states)


def waits_for(pod: Object) -> tuple[str, str]:
    """Reason and words of a container that waits."""
    found = container_state(pod).get("waiting") or {}
    return str(found.get("reason") or ""), on_one_line(found.get("message"))


def exit_code(pod: Object) -> int | None:
    """Of its container, if that has ended."""
    found = (container_state(pod).get("terminated") or {}).get("exitCode")
    return None if found is None else int(found)


def _spec(pod: Object) -> Object:
    return next(iter((pod.get("spec") or {}).get("containers") or ()), {})


def image_of(pod: Object) -> str:
    """The image of its container."""
    return str(_spec(pod).get("image") or "(none)")


def limit_of(pod: Object, resource: str) -> str:
    """What its container may have of a resource; "": as much as there is."""
    return str(((_spec(pod).get("resources") or {}).get("limits") or {}).get(resource) or "")


def node_of(pod: Object) -> str:
    """The node that it has, for people."""
    return str((pod.get("spec") or {}).get("nodeName") or "its node")


def name_of(pod: Object) -> str:
    """Its name."""
    return str((pod.get("metadata") or {}).get("name") or "")


def on_one_line(text: object) -> str:
    """What others say, on one line."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def event_at(event: Object) -> int:
    """When an event was last seen (ms since the epoch); 0: it does not say."""
    series = (event.get("series") or {}).get("lastObservedTime")
    return next(
        (
            at
            for text in (series, event.get("lastTimestamp"), event.get("eventTime"))
            if (at := instant(text)) is not None
        ),
        0,
    )


def failure_of(pod: Object) -> tuple[int, str]:
    """Of a failed pod with any containers: exit status and words of the first that failed; "" where a node or the cluster
    ended it."""
    status = pod.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (one.get("state") or {}).get("terminated") or {}
        code = int(ended.get("exitCode") or 0)
        if code and not status.get("reason"):
            why = "was killed for using all of its memory" if ended.get("reason") == "OOMKilled" else f"ended with code {code}"
            said = on_one_line(ended.get("message"))
            return code, f"container {one.get('name')!r} of pod {name_of(pod)} {why}{f': {said}' if said else ''}"
    return -1, ""
