"""Who may do what: bearer tokens, ServiceAccounts and the roles of RBAC; quotas of namespaces."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.kube.answers import Refused, forbidden
from tests.kube.checks import quantity
from tests.kube.pods import ENDED, PODS
from tests.kube.resources import BY_PLURAL
from tests.kube.store import Item, Store

MASTERS = "system:masters"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Action:
    """``resource`` with its subresource: `pods/binding`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Rights:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._users: dict[str, User] = {}

    def token(self, user: User) -> str:
        token = secrets.token_urlsafe(24)
        self._users[token] = user
        return token

    def account_token(self, namespace: str, name: str) -> str:
        """A token of a ServiceAccount, good as long as the account is there."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return self.token(User(f"system:serviceaccount:{namespace}:{name}", groups))

    def revoke(self, token: str) -> None:
        """From now on it is answered with 401."""
        del self._users[token]

    def user(self, header: str | None) -> User:
        scheme, _, token = (header or "").partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is not None and user.name.startswith("system:serviceaccount:"):
            _, _, namespace, name = user.name.split(":", 3)
            if self._store.find(BY_PLURAL["serviceaccounts"], namespace, name) is None:
                user = None
        if user is None:
            raise Refused(401, "Unauthorized")
        return user

    def check(self, user: User, action: Action) -> None:
        if not self.allowed(user, action):
            base, _, sub = action.resource.partition("/")
            where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
            why = f'User "{user.name}" cannot {action.verb} resource "{base}{"/" + sub if sub else ""}" in API group "{action.group}"{where}'
            raise forbidden(BY_PLURAL[base], action.name, why)

    def allowed(self, user: User, action: Action) -> bool:
        return MASTERS in user.groups or any(_covers(rule, action) for rule in self._rules(user, action.namespace))

    def _rules(self, user: User, namespace: str) -> Iterable[Mapping[str, Any]]:
        for binding in self._store.items(BY_PLURAL["clusterrolebindings"]):
            if _binds(binding, user):
                yield from self._role(binding)
        if namespace:
            for binding in self._store.items(BY_PLURAL["rolebindings"], namespace):
                if _binds(binding, user):
                    yield from self._role(binding)

    def _role(self, binding: Item) -> Iterable[Mapping[str, Any]]:
        ref = binding.obj["roleRef"]
        if ref["kind"] == "ClusterRole":
            role = self._store.find(BY_PLURAL["clusterroles"], "", ref["name"])
        else:
            role = self._store.find(BY_PLURAL["roles"], binding.namespace, ref["name"])
        return (role.obj.get("rules") or []) if role is not None else []


def _binds(binding: Item, user: User) -> bool:
    for subject in binding.obj.get("subjects") or []:
        if subject["kind"] == "ServiceAccount":
            namespace = subject.get("namespace") or binding.namespace
            if user.name == f"system:serviceaccount:{namespace}:{subject['name']}":
                return True
        elif (subject["kind"] == "Group" and subject["name"] in user.groups) or (subject["kind"] == "User" and subject["name"] == user.name):
            return True
    return False


def _covers(rule: Mapping[str, Any], action: Action) -> bool:
    def has(field: str, value: str) -> bool:
        return not {"*", value}.isdisjoint(rule.get(field) or [])

    if not (has("verbs", action.verb) and has("apiGroups", action.group) and has("resources", action.resource)):
        return False
    names = rule.get("resourceNames")
    return not names or action.name in names


# ---------------------------------------------------------------------- quotas


def check_quota(store: Store, pod: Mapping[str, Any]) -> None:
    """Refuses with 403 a new pod for which a ResourceQuota of its namespace has no room."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for quota in store.items(BY_PLURAL["resourcequotas"], namespace):
        hard = (quota.obj.get("spec") or {}).get("hard") or {}
        wanted = _usage(pod)
        used: dict[str, Decimal] = {}
        for other in store.items(PODS, namespace):
            if other.obj["status"].get("phase") not in ENDED:
                for key, amount in _usage(other.obj).items():
                    used[key] = used.get(key, Decimal(0)) + amount
        over = [key for key in sorted(hard) if key in wanted and used.get(key, 0) + wanted[key] > quantity(hard[key])]
        if over:
            parts = (("requested", wanted), ("used", used), ("limited", {k: quantity(v) for k, v in hard.items()}))
            said = ", ".join(f"{word}: {','.join(f'{key}={values.get(key, 0)}' for key in over)}" for word, values in parts)
            raise forbidden(PODS, name, f"exceeded quota: {quota.name}, {said}")


def _usage(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    usage = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for kind in ("requests", "limits"):
            for name, value in (resources.get(kind) or {}).items():
                keys = [f"{kind}.{name}", *([name] if kind == "requests" and name in {"cpu", "memory"} else [])]
                for key in keys:
                    usage[key] = usage.get(key, Decimal(0)) + quantity(value)
    return usage
