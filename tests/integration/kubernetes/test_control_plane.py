"""The real API server of the tests outlives whatever restarts it."""

from __future__ import annotations

from threading import Thread

import pytest

from tests.kube.cluster import Cluster


def test_it_outlives_the_thread_that_restarted_it(cluster: Cluster) -> None:
    if cluster.plane is None:
        pytest.skip("this one is not ours to restart")
    restarting = Thread(target=cluster.plane.restart_api)
    restarting.start()
    restarting.join()
    assert cluster.plane.ended() is None
    assert cluster.client.call("GET", "/readyz").is_success
