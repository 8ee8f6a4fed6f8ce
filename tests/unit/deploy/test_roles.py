"""The roles that are shipped grant what the code says it does, and no more."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from gpufair.service.backends.kubernetes import rights
from gpufair.service.backends.kubernetes.asked import asked
from tests.unit.deploy.read import BASE, CHART, DEPLOY, documents


def granted(role: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """By group and resource, whatever way the rules are put together."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in role["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), []).extend(rule["verbs"])
    return {key: sorted(verbs) for key, verbs in found.items()}


def the_table(table: tuple[rights.Right, ...]) -> dict[tuple[str, str], list[str]]:
    return granted({"rules": rights.rules(table)})


def chart_role() -> list[dict[str, Any]]:
    text = re.sub(r"\{\{.*?\}\}", "x", (CHART / "templates" / "role.yaml").read_text(encoding="utf-8"))
    return [one for one in yaml.safe_load_all(text) if one is not None]


@pytest.mark.parametrize("objects", [documents(BASE / "role.yaml"), chart_role()], ids=["manifests", "chart"])
def test_roles_are_the_table_of_rights(objects: list[dict[str, Any]]) -> None:
    """A right too many is an attacker's, one that is missing stops every workload."""
    (role,) = [one for one in objects if one["kind"] == "Role" and one["metadata"]["name"] == "gpufair"]
    (sees,) = [
        one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"].startswith("gpufair-sees")
    ]
    assert granted(role) == the_table(rights.NAMESPACE)
    assert granted(sees) == the_table(rights.CLUSTER)


def test_roles_of_others_namespaces_are_the_table_of_rights() -> None:
    """There the service may less: it makes no pods, and reads no secrets."""
    chart = re.sub(r"\{\{.*?\}\}", "x", (CHART / "templates" / "others.yaml").read_text(encoding="utf-8"))
    for text in ((DEPLOY / "kubernetes" / "others" / "role.yaml").read_text(encoding="utf-8"), chart.replace("\nx\n", "\n").removeprefix("x\n").removesuffix("x\n")):
        (role,) = [one for one in yaml.safe_load_all(text) if one is not None and one["kind"] == "Role"]
        assert granted(role) == the_table(rights.OTHERS)


def test_nothing_is_changed_outside_of_the_namespaces() -> None:
    """What holds for the whole cluster is looking."""
    assert {verb for right in rights.CLUSTER for verb in right.verbs} <= {"get", "list", "watch"}


def test_each_right_has_a_reason_and_none_is_a_wildcard() -> None:
    """Administrators read this before they grant it."""
    for right in (*rights.CLUSTER, *rights.NAMESPACE, *rights.OTHERS):
        assert right.why.startswith(("to ", "so that "))
        assert "*" not in {right.resource, right.group, *right.verbs}


def test_a_call_is_covered_by_its_right() -> None:
    """Verb, resource and subresource, and group all count."""
    bind = asked("POST", "/api/v1/namespaces/a/pods/p/binding")
    assert any(right.covers(bind) for right in rights.NAMESPACE)
    for method, path in (
        ("POST", "/api/v1/namespaces/a/pods/p/eviction"),
        ("DELETE", "/api/v1/namespaces/a/pods"),
        ("POST", "/apis/elsewhere.io/v1/namespaces/a/pods"),
    ):
        assert not any(right.covers(asked(method, path)) for right in rights.NAMESPACE)
