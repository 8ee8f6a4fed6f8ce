"""Clusters by their names, and how jobs lie on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.model import Shape
from gpufair.sim.cluster import Cluster, ClusterError


def test_nodes_have_types_and_racks():
    """In the order in which they are written."""
    cluster = Cluster.parse("3x8:a100, 2x4:l40", rack=2)
    nodes = cluster.nodes()
    assert [(node.name, node.gpus, node.gpu_type) for node in nodes] == [
        ("n0", 8, "a100"), ("n1", 8, "a100"), ("n2", 8, "a100"), ("n3", 4, "l40"), ("n4", 4, "l40"),
    ]  # fmt: skip
    assert [node.labels["rack"] for node in nodes] == ["r0", "r0", "r1", "r1", "r2"]
    assert (cluster.gpus, str(cluster)) == (32, "3x8:a100,2x4:l40")
    assert not Cluster.parse("2x8", rack=0).nodes()[0].labels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("128", "is not NODESxGPUS"),
        ("", "a part is empty"),
        ("2x8,", "a part is empty"),
        ("0x8", "has no GPUs"),
        ("8x0", "has no GPUs"),
        ("-1x8", "is not NODESxGPUS"),
        ("2x8:", "is not NODESxGPUS"),
        ("1x2000", "GPUs in one node"),
        ("999999x8", "more than 100,000 nodes"),
        ("x" * 10_000, "is not NODESxGPUS"),
    ],
)
def test_what_is_no_cluster_is_refused(text, says):
    """With an example of what is one."""
    with pytest.raises(ClusterError) as raised:
        Cluster.parse(text)
    assert says in str(raised.value)
    assert "like 128x8" in str(raised.value)


@pytest.mark.parametrize(
    ("gpus", "nodes", "shape"),
    [
        (1, None, Shape(1)),
        (8, None, Shape(8)),
        (8, 2, Shape(4, 2)),
        (12, None, Shape(6, 2)),
        (17, None, Shape(6, 3)),  # one more than asked for: nodes of a gang are alike
        (12, 1, Shape(6, 2)),  # was on one larger node
        (3, 9, Shape(3)),  # more nodes than GPUs
        (24, None, Shape(8, 3)),
        (25, None, Shape(4, 7)),  # only three nodes have 8; so many have 4 only with the others
        (45, None, None),
    ],
)
def test_jobs_lie_on_as_few_nodes_as_possible(gpus, nodes, shape):
    """Or on as many as they were recorded on, if that is possible here."""
    assert Cluster.parse("3x8,5x4").shape(gpus, nodes) == shape


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 120), st.none() | st.integers(1, 20))
def test_a_shape_holds_what_was_asked_for(count, size, gpus, nodes):
    """And wastes less than one GPU per node; there is one whenever all GPUs together would do in whole nodes."""
    cluster = Cluster.parse(f"{count}x{size}")
    shape = cluster.shape(gpus, nodes)
    if shape is None:
        assert gpus > count * size
    else:
        assert shape.nodes <= count
        assert shape.gpus_per_node <= size
        assert gpus <= shape.gpus < gpus + shape.nodes


def test_types_are_kept_apart():
    """Who asks for one does not get the other."""
    cluster = Cluster.parse("2x8:a100,8x4:l40")
    assert cluster.shape(32, gpu_type="l40") == Shape(4, 8, "l40")
    assert cluster.shape(32, gpu_type="a100") is None
    assert cluster.largest("a100") == Shape(8, 2, "a100")
    assert cluster.largest() == Shape(4, 10)
    assert cluster.largest("h100") is None
