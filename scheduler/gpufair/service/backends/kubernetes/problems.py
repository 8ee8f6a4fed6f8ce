"""What an API server may answer instead of what was asked for: a class for each kind, with what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from gpufair.core.errors import GpufairError
from gpufair.service.backends.kubernetes.asked import Asked

ConflictKind = Literal["exists", "stale", "bound", "deleting", "other"]
ForbiddenKind = Literal["rights", "quota", "policy", "namespace"]

_SHOWN: Final = 600  # characters of a server's text: a webhook may answer with a page


class NoApiServer(GpufairError):
    """The settings lead to no API server: a kubeconfig that is not there, a context that it does not have."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where, self.why = where, why

    def __str__(self) -> str:
        return (
            f"{self.where} leads to no Kubernetes API server: {self.why}; name a kubeconfig (and one of its contexts) in the "
            "pool's settings, or run the service in a pod that has a service account"
        )


class KubernetesProblem(GpufairError):
    """The API server did not do what was asked.

    Attributes:
        asked: What it was asked.
        said: What it said, or what became of the connection.
        status: The HTTP status; 0: there was no answer.
        reason: The machine's word for it (``AlreadyExists``), or "".
        retry_after_s: After how many seconds it wants to be asked again; None: it did not say.
    """

    _advice: ClassVar[str] = "see the log of the API server"

    def __init__(
        self, asked: Asked, said: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(asked, said)
        self.asked, self.said, self.status, self.reason = asked, said, status, reason
        self.retry_after_s = retry_after_s

    @property
    def advice(self) -> str:
        """What to do about it."""
        return self._advice

    def __str__(self) -> str:
        code = f" ({self.status})" if self.status else ""
        return f"Kubernetes could not {self.asked}{code}: {self.said}; {self.advice}"


class Missing(KubernetesProblem):
    """404: there is no such object, or no such kind of object."""

    _advice = "it may have been deleted meanwhile, or this server does not know the kind"


class Conflict(KubernetesProblem):
    """409: the object is not as the call took it to be.

    Attributes:
        kind: ``exists``: one of that name is there. ``stale``: the resourceVersion or uid is not that of the object any more.
            ``bound``: the pod has a node. ``deleting``: the pod is being deleted. ``other``: read ``said``.
    """

    @property
    def kind(self) -> ConflictKind:
        """Which of the conflicts it is."""
        if self.reason == "AlreadyExists":
            return "exists"
        if "already assigned to node" in self.said:
            return "bound"
        if "is being deleted" in self.said:
            return "deleting"
        return "stale" if _STALE.search(self.said) else "other"

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _CONFLICT_ADVICE[self.kind]


class Gone(KubernetesProblem):
    """410: the resourceVersion or the continue token is older than what the server remembers."""

    _advice = "list again"


class Invalid(KubernetesProblem):
    """422, and other answers that say the request itself is wrong (400, 405, 413, 415): repeating it is no use."""

    _advice = "mend the template of the profile, or the settings of the pool, that it was made from"


class Forbidden(KubernetesProblem):
    """403: the account may not, or a quota or a policy of the cluster stands against it.

    Attributes:
        kind: ``rights``: the account lacks the right. ``quota``: a ResourceQuota is used up. ``namespace``: the namespace is
            being deleted. ``policy``: admission refused it (Pod Security, a webhook, a missing service account).
    """

    @property
    def kind(self) -> ForbiddenKind:
        """Which of the refusals it is."""
        if "exceeded quota" in self.said or "failed quota" in self.said:
            return "quota"
        if "being terminated" in self.said:
            return "namespace"
        return "rights" if _RIGHTS.search(self.said) else "policy"

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.kind == "rights":
            group = f" in API group {self.asked.group!r}" if self.asked.group else ""
            return f"grant the service's role {self.asked.verb!r} on {self.asked.resource!r}{group}, as the manifests in deploy/ do"
        return _FORBIDDEN_ADVICE[self.kind]


class Unauthorized(KubernetesProblem):
    """401: the server does not know who asks."""

    _advice = (
        "see that the token or the certificate of the service's account is valid; the file is read again each minute"
    )


class Throttled(KubernetesProblem):
    """429: the server asks for patience. Nothing was done."""

    _advice = "it is asked again later"


class Unavailable(KubernetesProblem):
    """5xx, a broken connection, no answer in time, or an answer that is none.

    Attributes:
        perhaps_done: Whether the call may have taken effect all the same.
    """

    _advice = "it is asked again; if it stays so, see whether the API server is well and can be reached from here"

    def __init__(
        self,
        asked: Asked,
        said: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
        perhaps_done: bool = True,
    ) -> None:
        super().__init__(asked, said, status=status, reason=reason, retry_after_s=retry_after_s)
        self.perhaps_done = perhaps_done


class TooLarge(KubernetesProblem):
    """An answer is larger than what is read of one."""

    _advice = "list in smaller pages, or with a selector"


_STALE: Final = re.compile(
    r"object has been modified|precondition|StorageError|please apply your changes", re.IGNORECASE
)
_RIGHTS: Final = re.compile(r"\bcannot (?:get|list|watch|create|update|patch|delete|deletecollection|bind|escalate)\b")
_CONFLICT_ADVICE: Final[Mapping[ConflictKind, str]] = {
    "exists": "look at whose it is before another one is made",
    "stale": "read it again and decide anew",
    "bound": "look at the node that it has",
    "deleting": "wait until it is gone",
    "other": "read it again and decide anew",
}
_FORBIDDEN_ADVICE: Final[Mapping[ForbiddenKind, str]] = {
    "quota": "raise the ResourceQuota of the namespace, or ask for less",
    "namespace": "wait until the namespace is gone and make it again",
    "policy": "see which policy of the cluster refused it, and change that or the template of the profile",
}
_BY_STATUS: Final[Mapping[int, type[KubernetesProblem]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def problem_of(
    asked: Asked, status: int, body: bytes | Mapping[str, Any], retry_after: str | None = None
) -> KubernetesProblem:
    """The problem that an answer is.

    Args:
        status: Of HTTP; in an ERROR event of a watch, the ``code`` of its Status.
        body: A ``Status`` as bytes or read already; whatever else a proxy may send is quoted.
        retry_after: The header, where there is one.
    """
    told = body if isinstance(body, Mapping) else _status_in(body)
    details = told.get("details") if isinstance(told.get("details"), Mapping) else None
    said = _shown(str(told.get("message") or "")) or _quoted(body)
    reason = str(told.get("reason") or "")
    facts: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "retry_after_s": _seconds(retry_after, (details or {}).get("retryAfterSeconds")),
    }
    if reason == "Expired" or (status == 400 and "continue" in said and "expired" in said):
        return Gone(asked, said, **facts)
    kind = _BY_STATUS.get(status)
    if kind is not None:
        return kind(asked, said, **facts)
    if 400 <= status < 500 and status != 408:
        return Invalid(asked, said, **facts)
    if 300 <= status < 400:
        said = f"it sends elsewhere, as no API server does ({said})"
    return Unavailable(asked, said, perhaps_done=status >= 500, **facts)


def _status_in(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _quoted(body: bytes | Mapping[str, Any]) -> str:
    text = body.decode(errors="replace") if isinstance(body, bytes) else json.dumps(body)
    return _shown(text) or "it gave no reason"


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line[:_SHOWN] + "…" if len(line) > _SHOWN else line


def _seconds(header: str | None, told: object) -> float | None:
    # The header may be a date as well; API servers send seconds.
    if header is not None and header.strip().isdecimal():
        return float(header)
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) and told >= 0 else None
