"""After a restart our pods are found by what stands on them; whatever stands on one of them, the others are found."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes import names
from gpufair.service.backends.kubernetes.names import PodKey, pod_name
from gpufair.service.backends.kubernetes.strangers import SHOWN, Strangers, said_of
from tests.unit.kubernetes.cluster_objects import pod as any_pod


def pod(key: PodKey, node: str = "gpu-01") -> dict[str, Any]:
    """One as we make it."""
    found = any_pod(pod_name(key), node, namespace="gpufair", labels=names.labels(key, "cluster", "a", "ada"))
    found["metadata"]["annotations"] = names.notes(key, "cluster", "a", "ada")
    return found


KEYS = st.sampled_from([names.WORKLOAD, names.INCARNATION, names.RANK, names.POOL, names.ALLOCATION, names.USER, names.MANAGED_BY])
LONG = st.builds(lambda text, times: text * times, st.sampled_from(["1", "0", "x", "é", "１"]), st.integers(1, 5000))
CHANGES = st.dictionaries(KEYS, st.none() | st.text(max_size=40) | LONG, max_size=4)


@given(st.lists(st.tuples(CHANGES, CHANGES), min_size=1, max_size=4))
def test_whatever_stands_on_a_pod_the_healthy_are_found(changes: list[tuple[dict[str, str | None], dict[str, str | None]]]) -> None:
    """One that is read at all is read as what it was made for, and one that is not is told of at its node and kept in mind."""
    strangers, healthy = Strangers(), PodKey(WorkloadId("healthy"), 3, 1)
    odd = [PodKey(WorkloadId(f"odd-{at}"), 1, 0) for at in range(len(changes))]
    for key, (labelled, noted) in zip(odd, changes, strict=True):
        one = pod(key, "gpu-02")
        for what, change in (("labels", labelled), ("annotations", noted)):
            both = one["metadata"][what] | change
            one["metadata"][what] = {name: text for name, text in both.items() if text is not None}
        strangers.found(one)
    strangers.found(pod(healthy))
    read = strangers.read()
    assert read[pod_name(healthy)] == healthy
    assert {name: key for name, key in read.items() if key in {healthy, *odd}} == read
    assert len(strangers.odd().get("gpu-02", [])) == len(odd) + 1 - len(read)
    assert "gpu-01" not in strangers.odd()
    assert strangers.of([("healthy", 3)]) == {f"uid-{pod_name(healthy)}"}
    for name in read:
        assert strangers.take(name) is not None
    assert strangers.read() == {}
    assert len(strangers.odd().get("gpu-02", [])) == len(odd) + 1 - len(read)


def test_what_is_wrong_is_said_until_it_is_put_right_or_gone() -> None:
    """And not for hundreds at one node."""
    strangers, key = Strangers(), PodKey(WorkloadId("w"), 1, 0)
    wrong = pod(key)
    wrong["metadata"]["annotations"][names.INCARNATION] = "9" * 5000
    strangers.found(wrong)
    assert strangers.read() == {}
    (text,) = strangers.odd()["gpu-01"]
    assert text.startswith("pod 'gpufair-w-1-0' does not say which workload, incarnation and rank it is; it keeps its GPUs")
    strangers.found(pod(key))
    assert strangers.read() == {"gpufair-w-1-0": key}
    assert strangers.odd() == {}
    for at in range(2 * SHOWN):
        strangers.found({**pod(PodKey(WorkloadId(f"w{at}"), 1)), "metadata": {"name": f"other-{at}", "uid": f"u{at}"}})
    assert set(strangers.read()) == {"gpufair-w-1-0"}
    assert len(strangers.odd()["gpu-01"]) == SHOWN
    for at in range(2 * SHOWN):
        strangers.forget(f"other-{at}")
    assert strangers.odd() == {}


def test_events_are_kept_in_their_order() -> None:
    """The last of them is what counts."""
    told = [{"metadata": {"resourceVersion": version}, "involvedObject": {"uid": uid}} for version, uid in (("10", "a"), ("9", "a"), ("2", "b"))]
    by_uid = said_of(told)
    assert [one["metadata"]["resourceVersion"] for one in by_uid["a"]] == ["9", "10"]
    assert len(by_uid["b"]) == 1
