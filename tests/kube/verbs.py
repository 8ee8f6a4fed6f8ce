"""What a request does to the objects. Everything here is carried out at once, in the server's one thread."""

from __future__ import annotations

import base64
import copy
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tests.kube import pods
from tests.kube.answers import Refused, forbidden, invalid, not_found, success
from tests.kube.checks import check_change, check_new, fill_in
from tests.kube.matching import selected
from tests.kube.patches import patched
from tests.kube.requests import Asked, unknown_path
from tests.kube.resources import BY_PLURAL, Resource
from tests.kube.rights import Rights, check_quota
from tests.kube.store import Item, Store, stamp

Answer = tuple[int, dict[str, Any] | Item]

NAMESPACES = BY_PLURAL["namespaces"]
# Kept by the API server whatever a request says.
_ITS_OWN = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")


class Verbs:
    def __init__(self, store: Store, rights: Rights) -> None:
        self._store = store
        self._rights = rights
        # Lists that are being read page by page.
        self._pages: dict[str, tuple[int, list[Item]]] = {}

    def carry_out(self, asked: Asked) -> Answer:
        """The HTTP status and the answer. Raises Refused."""
        if asked.subresource in {"binding", "eviction", "token"}:
            act: Callable[[Asked], Answer] = {"binding": self._bind, "eviction": self._evict, "token": self._token}[asked.subresource]
            if asked.method != "POST":
                raise Refused(405, "the server does not allow this method on the requested resource")
            return act(asked)
        if asked.subresource == "log":
            raise unknown_path()
        match asked.method, bool(asked.name):
            case "GET", True:
                return 200, self._store.get(asked.resource, asked.namespace, asked.name)
            case "GET", False:
                return 200, self._list(asked)
            case "POST", False:
                return self._create(asked)
            case "PUT", True:
                return self._update(asked, asked.json())
            case "PATCH", True:
                return self._patch(asked)
            case "DELETE", True:
                return self._delete(asked)
            case "DELETE", False:
                return self._delete_all(asked)
        raise Refused(405, "the server does not allow this method on the requested resource")

    def forget_pages(self) -> None:
        self._pages.clear()

    # ------------------------------------------------------------------ reading

    def _list(self, asked: Asked) -> dict[str, Any]:
        token, limit = asked.query.get("continue", ""), asked.number("limit") or 0
        if token:
            version, rest = self._page(token)
        else:
            matches = selected(asked.resource, asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
            version = self._store.version
            if (least := asked.number("resourceVersion") or 0) > version:
                raise Refused(504, f"Timeout: Too large resource version: {least}, current: {version}")
            rest = [item for item in self._store.items(asked.resource, asked.namespace) if matches(item.obj)]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        shown = rest[:limit] if limit else rest
        if len(shown) < len(rest):
            mark = secrets.token_hex(8)
            self._pages[mark] = (version, rest[limit:])
            metadata["continue"] = base64.urlsafe_b64encode(json.dumps({"v": version, "mark": mark}).encode()).decode()
            metadata["remainingItemCount"] = len(rest) - limit
        # As the API server: items of a list name no kind.
        items = [{key: value for key, value in item.obj.items() if key not in {"kind", "apiVersion"}} for item in shown]
        return {"kind": f"{asked.resource.kind}List", "apiVersion": asked.resource.api_version, "metadata": metadata, "items": items}

    def _page(self, token: str) -> tuple[int, list[Item]]:
        try:
            mark = json.loads(base64.urlsafe_b64decode(token))["mark"]
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(400, "continue key is not valid") from error
        if mark not in self._pages:
            raise Refused(410, "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.")  # fmt: skip
        return self._pages[mark]

    # ------------------------------------------------------------------ writing

    def _create(self, asked: Asked) -> Answer:
        obj, resource = _of_its_kind(asked), asked.resource
        metadata = dict(obj.get("metadata") or {})
        obj["metadata"] = metadata
        if metadata.get("namespace") not in {None, "", asked.namespace}:
            raise Refused(400, "the namespace of the provided object does not match the namespace sent on the request")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName'][:58]}{_five()}"
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            given = metadata.pop(key, None)
            if key == "resourceVersion" and given:
                raise Refused(500, "resourceVersion should not be set on objects to be created")
        if resource.namespaced:
            metadata["namespace"] = asked.namespace
            self._check_namespace(resource, asked.namespace, metadata.get("name", ""))
        if resource.has_status and resource.plural != "nodes":
            obj.pop("status", None)
        check_new(resource, obj)
        fill_in(resource, obj)
        if resource.plural == "pods" and self._store.find(resource, asked.namespace, metadata["name"]) is None:
            check_quota(self._store, obj)
        if asked.query.get("dryRun"):
            return 201, obj
        return 201, self._store.create(resource, obj)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        there = self._store.find(NAMESPACES, "", namespace)
        if there is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in there.obj["metadata"]:
            refusal = forbidden(resource, name, f"unable to create new content in namespace {namespace} because it is being terminated")
            refusal.details["causes"] = [{"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated", "field": "metadata.namespace"}]  # fmt: skip
            raise refusal

    def _update(self, asked: Asked, obj: dict[str, Any]) -> Answer:
        resource = asked.resource
        obj = _of_its_kind(asked, obj)
        metadata = obj["metadata"] = dict(obj.get("metadata") or {})
        if metadata.get("name") != asked.name:
            raise Refused(400, f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({asked.name})")
        item = self._store.find(resource, asked.namespace, asked.name)
        if item is None:
            if resource.create_on_update and not asked.subresource:
                metadata.pop("resourceVersion", None)
                return self._create(asked)
            raise not_found(resource, asked.name)
        if not metadata.get("resourceVersion") and not resource.unconditional_update:
            raise invalid(resource, asked.name, [("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")])
        if metadata.get("uid") not in {None, "", item.uid}:
            pods.check_preconditions(item, {"preconditions": {"uid": metadata["uid"]}})
        return 200, self._write(asked, item, obj)

    def _write(self, asked: Asked, item: Item, obj: dict[str, Any]) -> Item:
        resource, old = asked.resource, item.obj
        metadata = obj["metadata"]
        for key in _ITS_OWN:
            metadata.pop(key, None)
            if key in old["metadata"]:
                metadata[key] = old["metadata"][key]
        if asked.subresource == "status":
            obj = {**old, "metadata": metadata, "status": obj.get("status") or {}}
        elif resource.has_status:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        if resource.plural == "secrets":
            fill_in(resource, obj)
        if asked.subresource == "finalize":
            obj = {**old, "metadata": metadata, "spec": obj.get("spec") or {}}
        check_change(resource, old, obj)
        if asked.query.get("dryRun"):
            return Item(resource, obj)
        written = self._store.replace(item, obj)
        return self._store.remove(written) if _finished(written) else written

    def _patch(self, asked: Asked) -> Answer:
        item = self._store.get(asked.resource, asked.namespace, asked.name)
        try:
            patch = json.loads(asked.body)
        except ValueError as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
        obj = patched(item.obj, patch, asked.content_type)
        if (uid := obj["metadata"].get("uid")) != item.uid:
            raise invalid(item.resource, item.name, [("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
        return 200, self._write(asked, item, obj)

    # ------------------------------------------------------------------ deleting

    def _delete(self, asked: Asked) -> Answer:
        item = self._store.get(asked.resource, asked.namespace, asked.name)
        gone = self.delete(item, _options(asked))
        if asked.resource.returns_deleted or self._store.find(asked.resource, asked.namespace, asked.name) is not None:
            return 200, gone
        group = {"group": asked.resource.group} if asked.resource.group else {}
        return 200, success({"name": item.name, **group, "kind": asked.resource.plural, "uid": item.uid})

    def _delete_all(self, asked: Asked) -> Answer:
        matches = selected(asked.resource, asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        options = _options(asked)
        chosen = [item for item in self._store.items(asked.resource, asked.namespace) if matches(item.obj)]
        ended = [self.delete(item, options).obj for item in chosen]
        return 200, {"kind": f"{asked.resource.kind}List", "apiVersion": asked.resource.api_version, "metadata": {"resourceVersion": str(self._store.version)}, "items": ended}  # fmt: skip

    def delete(self, item: Item, options: Mapping[str, Any]) -> Item:
        pods.check_preconditions(item, options)
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(item.uid)
        if item.resource.plural == "pods":
            return pods.delete(self._store, item, options)
        metadata = item.obj["metadata"]
        if item.resource is NAMESPACES:
            if "deletionTimestamp" in metadata:
                raise Refused(409, f'Operation cannot be fulfilled on namespaces "{item.name}": The system is ensuring all content is removed from this namespace.  Upon completion, this namespace will automatically be purged by the system.')  # fmt: skip
            marked = {**item.obj, "metadata": {**metadata, "deletionTimestamp": stamp()}, "status": {"phase": "Terminating"}}
            return self._store.replace(item, marked)
        if metadata.get("finalizers"):
            if "deletionTimestamp" in metadata:
                return item
            return self._store.replace(item, {**item.obj, "metadata": {**metadata, "deletionTimestamp": stamp(), "deletionGracePeriodSeconds": 0}})
        return self._store.remove(item)

    def _orphan(self, uid: str) -> None:
        for resource in self._store.by_resource:
            for item in self._store.items(resource):
                owners = item.obj["metadata"].get("ownerReferences") or []
                left = [owner for owner in owners if owner["uid"] != uid]
                if len(left) != len(owners):
                    self._store.replace(item, {**item.obj, "metadata": {**item.obj["metadata"], "ownerReferences": left}})

    # ------------------------------------------------------------------ subresources

    def _bind(self, asked: Asked) -> Answer:
        pods.bind(self._store, asked.namespace, asked.name, asked.json())
        return 201, success(code=201)

    def _evict(self, asked: Asked) -> Answer:
        eviction = asked.json()
        if not str(eviction.get("apiVersion", "policy/v1")).startswith("policy/v1"):
            raise Refused(400, f"no kind \"Eviction\" is registered for version \"{eviction['apiVersion']}\"")
        pod = self._store.get(asked.resource, asked.namespace, asked.name)
        pods.check_eviction(self._store, pod)
        self.delete(pod, eviction.get("deleteOptions") or {})
        return 201, success(code=201)

    def _token(self, asked: Asked) -> Answer:
        self._store.get(asked.resource, asked.namespace, asked.name)
        request = copy.deepcopy(asked.json())
        spec = {"expirationSeconds": 3600, **(request.get("spec") or {})}
        token = self._rights.account_token(asked.namespace, asked.name)
        return 201, {**request, "spec": spec, "status": {"token": token, "expirationTimestamp": stamp()}}

def _finished(item: Item) -> bool:
    """Whether it waited for its last finalizer only."""
    metadata = item.obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return metadata.get("deletionGracePeriodSeconds") == 0 and item.resource is not NAMESPACES


def _of_its_kind(asked: Asked, obj: dict[str, Any] | None = None) -> dict[str, Any]:
    obj = dict(asked.json() if obj is None else obj)
    resource = asked.resource
    said = (obj.setdefault("apiVersion", resource.api_version), obj.setdefault("kind", resource.kind))
    if said != (resource.api_version, resource.kind):
        raise Refused(400, f"the API version in the data ({said[0]}, {said[1]}) does not match the expected API version ({resource.api_version}, {resource.kind})")
    return obj


def _options(asked: Asked) -> dict[str, Any]:
    """With a body, what the query says is not looked at."""
    if asked.body.strip():
        return asked.json()
    options: dict[str, Any] = {}
    if (grace := asked.number("gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = grace
    if policy := asked.query.get("propagationPolicy"):
        options["propagationPolicy"] = policy
    return options


def _five() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
