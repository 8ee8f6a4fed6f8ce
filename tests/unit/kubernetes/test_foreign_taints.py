"""Which nodes others' pods are kept off by taints that the pool tolerates and they do not."""

from __future__ import annotations

from typing import Any

import pytest

from gpufair.core.units import Instant
from gpufair.service.backends.kubernetes.foreign_taints import Taints
from gpufair.service.backends.kubernetes.inventory import offers
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from tests.unit.kubernetes.cluster_objects import node, pod

GPU = "nvidia.com/gpu"
FOR_GPUS = {"key": GPU, "value": "present", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoExecute"}
TAINTS = Taints({"n1": (FOR_GPUS,), "n2": (), "n3": (FOR_GPUS, DEDICATED)})


def theirs(*tolerations: dict[str, Any]) -> dict[str, Any]:
    """A pod that has no node yet."""
    return pod("theirs", "", tolerations=list(tolerations))


@pytest.mark.parametrize(
    ("tolerations", "off"),
    [
        ((), ("n1", "n3")),
        (({"key": GPU, "operator": "Exists"},), ("n3",)),
        (({"key": GPU, "operator": "Exists"}, {"key": "dedicated", "operator": "Equal", "value": "ml"}), ()),
        (({"key": GPU, "operator": "Exists"}, {"key": "dedicated", "value": "vision"}), ("n3",)),
        (({"operator": "Exists"},), ()),
        (({"operator": "Exists", "effect": "NoSchedule"},), ("n3",)),
        # It would be put out again after a minute.
        (({"key": GPU, "operator": "Exists"}, {"key": "dedicated", "operator": "Exists", "tolerationSeconds": 60}), ("n3",)),
    ],
)
def test_a_pod_is_kept_off_what_it_does_not_tolerate(tolerations: tuple[dict[str, Any], ...], off: tuple[str, ...]) -> None:
    """As the cluster's own scheduler reads taints and tolerations."""
    assert TAINTS.kept_off([theirs(*tolerations)]) == off


def test_the_pods_of_a_gang_are_kept_off_together() -> None:
    """Any of them may get any of its nodes."""
    tolerant = theirs({"operator": "Exists"})
    assert TAINTS.kept_off([tolerant, theirs()]) == ("n1", "n3")
    assert TAINTS.obstacle(theirs(), "n3") == "nvidia.com/gpu=present:NoSchedule"
    assert TAINTS.obstacle(tolerant, "n3") == TAINTS.obstacle(theirs(), "n2") == ""
    assert not Taints({"n2": ()})


def test_only_taints_that_keep_pods_off_count() -> None:
    """Soft ones do not, and what repeats a cordon or a silent kubelet is that node's standing."""
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    options = KubernetesOptions(image="i", service_url="https://s", gpus={GPU: ""})
    (offer,) = offers([node(taints=[soft, cordon, FOR_GPUS])], (), "kube", options, Instant(0))
    assert offer.taints == (FOR_GPUS,)
