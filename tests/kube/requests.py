"""One request to the API server: what its path and query ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kube.answers import Refused
from tests.kube.resources import BY_PATH, BY_PLURAL, Resource
from tests.kube.rights import Action


@dataclass(frozen=True)
class Asked:
    method: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    body: bytes
    content_type: str

    @property
    def watching(self) -> bool:
        return self.method == "GET" and not self.name and self.query.get("watch") in {"1", "true", "True"}

    @property
    def verb(self) -> str:
        """As RBAC calls it."""
        if self.method == "GET":
            return "get" if self.name else "watch" if self.watching else "list"
        if self.method == "DELETE":
            return "delete" if self.name else "deletecollection"
        return {"POST": "create", "PUT": "update", "PATCH": "patch"}[self.method]

    def action(self) -> Action:
        resource = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        return Action(self.verb, self.resource.group, resource, self.namespace, self.name)

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body)
        except ValueError as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused(400, "the body is no object")
        return value

    def number(self, name: str) -> int | None:
        """A whole number of the query, or None where it is not given."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.isdigit():
            raise Refused(400, f'{name}: Invalid value: "{text}": not a whole number')
        return int(text)


def read_request(method: str, uri: str, body: bytes, content_type: str) -> Asked:
    """Refuses with 404 a path that the API server does not know."""
    url = urlsplit(uri)
    query = {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise unknown_path()
    namespace = ""
    # `namespaces/NAME` and its own status are of the namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if rest[0] == "bindings" and namespace and not group:
        # The old way: the pod's name is in the body.
        name = json.loads(body or b"{}").get("metadata", {}).get("name", "")
        return Asked(method, BY_PLURAL["pods"], namespace, name, "binding", query, body, content_type)
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise unknown_path()
    name = rest[1] if len(rest) > 1 else ""
    sub = rest[2] if len(rest) > 2 else ""
    known = (*resource.subresources, *(("status",) if resource.has_status else ()))
    if sub and sub not in known and not (resource.plural == "namespaces" and sub == "finalize"):
        raise unknown_path()
    if resource.namespaced and not namespace and (name or method != "GET"):
        raise Refused(405, "the server does not allow this method on the requested resource")
    return Asked(method, resource, namespace, name, sub, query, body, content_type)


def unknown_path() -> Refused:
    return Refused(404, "the server could not find the requested resource", "NotFound")
