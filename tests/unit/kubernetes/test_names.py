"""What an object is for is known from its names alone; two starts never share one, and nobody can pass for another."""

from __future__ import annotations

import doctest
import re
import string
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes import inventory, names
from gpufair.service.backends.kubernetes.names import NotOurs, PodKey, key_of, label_value, pod_name, service_name
from gpufair.service.settings import quantities

IDS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=64)
KEYS = st.builds(PodKey, IDS.map(WorkloadId), st.integers(1, 10**6), st.integers(0, 4095))
DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def made(key: PodKey, pool: str = "cluster", user: str = "ada", allocation: str = "language/speech") -> dict[str, Any]:
    """A pod as we label it."""
    return {
        "metadata": {
            "name": pod_name(key),
            "labels": names.labels(key, pool, allocation, user),
            "annotations": names.notes(key, pool, allocation, user),
        }
    }


def test_an_ordinary_id_stays_readable() -> None:
    """People look for the id that they know."""
    key = PodKey(WorkloadId("5f0c0a9e-6a3b-4c44-9d3e-0d8d2e1b7c11"), 3, 1)
    assert pod_name(key) == "gpufair-5f0c0a9e-6a3b-4c44-9d3e-0d8d2e1b7c11-3-1"
    assert service_name(key.workload, 3) == "gpufair-5f0c0a9e-6a3b-4c44-9d3e-0d8d2e1b7c11-3"


@given(KEYS)
def test_names_and_labels_are_what_kubernetes_takes(key: PodKey) -> None:
    """A name is also a host's name, so 63 characters and nothing but small letters, digits and dashes."""
    for name in (pod_name(key), service_name(key.workload, key.incarnation)):
        assert DNS.fullmatch(name)
        assert len(name) <= 63
    for value in names.labels(key, "a pool/x", "language/ünïcode", "ada@lab").values():
        assert LABEL.fullmatch(value)
        assert len(value) <= 63


@given(KEYS)
def test_what_is_written_is_read_back(key: PodKey) -> None:
    """A restarted service finds every pod by this."""
    assert key_of(made(key)) == key


@given(KEYS, KEYS)
def test_two_starts_have_two_names(one: PodKey, other: PodKey) -> None:
    """Else the second would be taken for the first."""
    assume(one != other)
    assert pod_name(one) != pod_name(other)


@given(st.text(max_size=80), st.text(max_size=80))
def test_labels_tell_apart_and_keep_what_is_allowed(one: str, other: str) -> None:
    """As it is where Kubernetes allows it; unlike texts stay unlike."""
    assert LABEL.fullmatch(label_value(one))
    assert len(label_value(one)) <= 63
    if one != other:
        assert label_value(one) != label_value(other)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}},
        {"labels": {names.MANAGED_BY: "helm"}},
        {"labels": {names.WORKLOAD: "other"}},
        {"annotations": {names.INCARNATION: "9"}},
        {"annotations": {names.INCARNATION: "-1"}},
        {"annotations": {names.RANK: "x"}},
        {"annotations": {names.WORKLOAD: ""}},
        {"annotations": {names.INCARNATION: "1" * 5000}},
        {"annotations": {names.RANK: "0" * 5000}},
        {"annotations": {names.INCARNATION: "１"}},
        {"labels": {names.POOL: "h100"}},
        {"name": "gpufair-w-1-1"},
    ],
)
def test_a_changed_object_is_not_believed(change: dict[str, Any]) -> None:
    """Whoever relabels a pod must not have another workload's taken for ended, or adopted."""
    pod = made(PodKey(WorkloadId("w"), 1, 0))
    for what, value in change.items():
        meta = pod["metadata"]
        meta[what] = {**meta[what], **value} if isinstance(value, dict) and value else value
    with pytest.raises(NotOurs):
        key_of(pod)


def test_pods_of_a_pool() -> None:
    """Two pools in one cluster do not take each other's."""
    pod = made(PodKey(WorkloadId("w"), 1), pool="a100")
    assert names.is_ours(pod)
    assert names.is_ours(pod, "a100")
    assert not names.is_ours(pod, "h100")
    assert not names.is_ours({"metadata": {}})
    assert not names.was_ours(pod, "a100")
    del pod["metadata"]["labels"][names.MANAGED_BY]
    assert names.was_ours(pod, "a100")
    assert not names.was_ours(pod, "h100")
    assert not names.was_ours({"metadata": {}}, "a100")
    assert names.selector("a100") == "app.kubernetes.io/managed-by=gpufair,gpufair.io/pool=a100"


@pytest.mark.parametrize("module", [inventory, names, quantities])
def test_examples_are_true(module: ModuleType) -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(module).failed == 0
