"""What one call asks of an API server, in the words of its access rules: verb, resource, namespace, name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

JSON: Final = "application/json"

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. What is no resource (``/version``) has an empty ``resource`` and its path as ``name``."""

    verb: str  # as in RBAC: get, list, watch, create, update, patch, delete, deletecollection
    resource: str  # plural, with its subresource: "pods", "pods/binding"
    group: str = ""  # "" is the core group
    namespace: str = ""  # "" for what is in no namespace, and for all of them
    name: str = ""

    def __str__(self) -> str:
        what = " ".join(part for part in (self.resource, self.name and repr(self.name)) if part)
        return f"{self.verb} {what}" + (f" in namespace {self.namespace!r}" if self.namespace else "")


@dataclass(frozen=True)
class Request:
    """What is sent for one call. ``query``: values are strings, numbers or booleans; None is left out."""

    method: str
    path: str  # from the root
    body: Mapping[str, Any] | list[Any] | None = None
    query: Mapping[str, Any] | None = None
    content_type: str = JSON

    @cached_property
    def asked(self) -> Asked:
        """The same in the words of access rules."""
        return asked(self.method, self.path, self.query, self.body if isinstance(self.body, Mapping) else None)

    @property
    def target(self) -> str:
        """Path and query."""
        given = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in (self.query or {}).items()
            if value is not None
        }
        return self.path + (f"?{urlencode(given)}" if given else "")


def asked(
    method: str, path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
) -> Asked:
    """What ``method path`` asks. Never raises: a path that is no resource's is named as it is.

    Args:
        query: Says whether a list is watched.
        body: Names what is created, where it has a name.
    """
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"]:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, rest = parts[1], parts[3:]
    else:
        return Asked(method.lower(), "", name=path)
    namespace = ""
    # A namespace is a resource too: /namespaces/x is one, /namespaces/x/pods are its pods.
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if not rest:
        return Asked(method.lower(), "", group, name=path)
    name = rest[1] if len(rest) > 1 else ""
    resource = "/".join([rest[0], *rest[2:3]])
    if not name and method == "POST":
        name = str(((body or {}).get("metadata") or {}).get("name") or "")
    return Asked(_verb(method, named=len(rest) > 1, query=query or {}), resource, group, namespace, name)


def _verb(method: str, *, named: bool, query: Mapping[str, Any]) -> str:
    if method == "GET":
        if str(query.get("watch", "")).lower() in {"1", "true"}:
            return "watch"
        return "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, method.lower())
