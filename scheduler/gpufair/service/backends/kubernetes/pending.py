"""Why a pod does not begin: what it waits for, what waiting will not mend, and what is said when it has waited for too long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes.pod_status import (
    Object,
    event_at,
    image_of,
    name_of,
    node_of,
    on_one_line,
    waits_for,
)
from gpufair.service.backends.kubernetes.verdict import NO_AGENT, Ending, Verdict, not_run
from gpufair.service.settings.durations import format_duration

# What a registry says of the image itself or of who asks for it, as runtimes quote it.
_FOR_GOOD: Final = re.compile(
    r"manifest unknown|manifest \S+ not found|manifest for \S+ not found|name unknown|: not found\s*$|repository does not exist"
    r"|unauthorized|authentication required|access denied|insufficient_scope|requested access to the resource is denied"
    r"|no match for platform|\b403 Forbidden",
    re.IGNORECASE,
)
# A registry that was not reached has said nothing.
_PASSING: Final = re.compile(
    r"\blookup |dial tcp|no such host|server misbehaving|timed? ?out|deadline exceeded|connection (?:refused|reset)|\bEOF\b|TLS handshake"
    r"|too ?many ?requests|(?:status(?: code)?|:) (?:429|5\d\d)\b",
    re.IGNORECASE,
)
# Of events, what keeps a pod from beginning.
_TROUBLES: Final[Mapping[str, str]] = {
    "FailedMount": "a volume cannot be mounted",
    "FailedAttachVolume": "a volume cannot be attached to its node",
    "FailedMapVolume": "a volume cannot be mapped",
    "FailedCreatePodSandBox": "its node cannot give it a network",
    "NetworkNotReady": "the network of its node is not ready",
    "FailedCreatePodContainer": "its node cannot make a container",
}
_MISSING: Final = re.compile(
    r"(persistentvolumeclaim|secret|configmap)s? \"?([\w./-]+)\"? (?:not found|is being deleted)", re.IGNORECASE
)
_NO_KEY: Final = re.compile(r"couldn't find key|references non-existent (?:secret|config) key", re.IGNORECASE)
# What a kubelet says of the pod as it was written: no second look changes that.
_AS_IT_IS: Final = re.compile(r"runAsNonRoot|runAsUser|non-numeric user|invalid (?:variable|environment)", re.IGNORECASE)


def waiting(pod: Object, events: Iterable[Object] = ()) -> str:
    """What a pod that has not begun waits for, as a sentence; "": nothing is known."""
    reason, said = waits_for(pod)
    if reason in {"ErrImagePull", "ImagePullBackOff"}:
        return f"its image {image_of(pod)} is being pulled again: {said or 'the last try failed'}"
    trouble = _trouble(events)
    if trouble is not None:
        return f"{_TROUBLES[trouble[0]]}: {trouble[1]}"
    if any(one.get("reason") == "Pulling" for one in events) and not any(
        one.get("reason") == "Pulled" for one in events
    ):
        return f"its image {image_of(pod)} is being pulled"
    return f"its container is being made ({said})" if said else ""


def hopeless(pod: Object) -> Verdict | None:
    """What waiting will not mend."""
    reason, said = waits_for(pod)
    image = image_of(pod)
    if reason == "InvalidImageName":
        return Verdict(
            Ending.FAILED, f"{image} is no name of an image; an operator can correct it in the profile's pod"
        )
    if reason == "ImagePullBackOff" and _FOR_GOOD.search(said) and not _PASSING.search(said):
        return Verdict(
            Ending.FAILED,
            f"its image {image} cannot be pulled ({said}); an operator can correct its name or its imagePullSecrets in the profile's pod",
        )
    if reason == "ErrImageNeverPull":
        return Verdict(
            Ending.NOT_STARTED,
            f'{node_of(pod)} does not have the image {image}, and imagePullPolicy = "Never" forbids to pull it',
        )
    if reason == "CreateContainerConfigError" and _AS_IT_IS.search(said):
        return Verdict(Ending.FAILED, _unconfigured(said))
    if reason in {"CreateContainerError", "RunContainerError"} and NO_AGENT.search(said):
        return not_run(pod, said, 128)
    return None


def _unconfigured(said: str) -> str:
    return f"its container cannot be configured ({said or 'no reason given'}); an operator can make what is missing, or mend the profile's pod"


def lacks_our_secret(pod: Object, events: Iterable[Object]) -> bool:
    """Whether it cannot begin since the Secret that we made for it is not there (any more)."""
    trouble = _trouble(events)
    said = (waits_for(pod)[1], "" if trouble is None else trouble[1])
    return any((found := _MISSING.search(one)) is not None and found[2] == name_of(pod) for one in said)


def too_late(pod: Object, events: tuple[Object, ...], start_within: Millis) -> Verdict:
    """Of one that has not begun within that time."""
    begun = f"its pod did not begin on {node_of(pod)} within {format_duration(start_within)}"
    reason, said = waits_for(pod)
    if reason in {"ErrImagePull", "ImagePullBackOff"}:
        return Verdict(
            Ending.NOT_STARTED,
            f"{begun}: its image {image_of(pod)} cannot be pulled ({said or 'no reason given'}); is the registry there?",
        )
    if reason == "CreateContainerConfigError":
        lacks = _MISSING.search(said) or _NO_KEY.search(said)
        return Verdict(Ending.FAILED if lacks else Ending.NOT_STARTED, f"{begun}: {_unconfigured(said)}")
    if reason in {"CreateContainerError", "RunContainerError"}:
        return Verdict(Ending.NOT_STARTED, f"{begun}: its container could not be run ({said or 'no reason given'})")
    trouble = _trouble(events)
    if trouble is None:
        what = waiting(pod, events) or "the kubelet says nothing of it"
        return Verdict(Ending.NOT_STARTED, f"{begun}: {what}; `kubectl describe pod {name_of(pod)}` may say more")
    kind, why = trouble
    if (missing := _MISSING.search(why)) and missing[2] != name_of(pod):  # of its own name it is ours to make
        return Verdict(
            Ending.FAILED,
            f"{begun}: {_TROUBLES[kind]} ({why}); an operator can make what is missing, or mend the profile's pod",
        )
    return Verdict(Ending.NOT_STARTED, f"{begun}: {_TROUBLES[kind]} ({why})")


def _trouble(events: Iterable[Object]) -> tuple[str, str] | None:
    """The newest event that says what is in the way: its reason, and its words."""
    found = [one for one in events if one.get("reason") in _TROUBLES]
    if not found:
        return None
    last = max(found, key=lambda one: (event_at(one), str(one.get("message"))))
    return str(last["reason"]), on_one_line(last.get("message")) or "no reason given"
