"""`cluster`: each test runs against the fake API server, and against a real one where there is one.

Real is the cluster of `GPUFAIR_TEST_KUBECONFIG` (`make kube-up` prints one), else a control plane that is started here, once
per worker, from the programs that `make kube-build` has put into the cache. Without either those tests are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.kube.cluster import Cluster, make_cluster
from tests.kube.control_plane import ControlPlane
from tests.kube.fake_api import FakeApi
from tests.kube.programs import find

KUBECONFIG = "GPUFAIR_TEST_KUBECONFIG"
WITHOUT = "GPUFAIR_TEST_WITHOUT_REAL_KUBERNETES"


@dataclass(frozen=True)
class _Real:
    kubeconfig: Path
    plane: ControlPlane | None


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Real | str]:
    """How to reach the real one, or why there is none."""
    if given := os.environ.get(KUBECONFIG):
        assert Path(given).is_file(), f"{KUBECONFIG} names no file: {given}"
        yield _Real(Path(given), None)
        return
    programs = find()
    if os.environ.get(WITHOUT):
        yield f"{WITHOUT} is set"
    elif isinstance(programs, str):
        yield f"no real API server: {KUBECONFIG} is not set, and there is {programs}"
    else:
        with ControlPlane(tmp_path_factory.mktemp("control-plane"), programs) as plane:
            yield _Real(plane.kubeconfig, plane)


@pytest.fixture(params=["fake", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A namespace of its own; see Cluster. Everything of it ends with the test."""
    kind: Literal["fake", "real"] = request.param
    if kind == "fake":
        with FakeApi() as api:
            made = make_cluster("fake", api.kubeconfig(tmp_path / "kubeconfig"), tmp_path, fake=api)
            try:
                yield made
            finally:
                made.close()
        return
    real = request.getfixturevalue("real_cluster")
    if isinstance(real, str):
        pytest.skip(real)
    made = make_cluster("real", real.kubeconfig, tmp_path, plane=real.plane)
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True)
class Server:
    """One API server, and a namespace of it for this test alone."""

    kubeconfig: Path
    namespace: str
    fake: FakeApi | None  # None: it is real
    cluster: Cluster

    def account(self, path: Path, name: str = "weak") -> Path:
        """The kubeconfig of a new ServiceAccount of the namespace, which has no rights yet."""
        return self.cluster.account(name, [], path=path)


@pytest.fixture
def server(cluster: Cluster) -> Server:
    return server_of(cluster)


def server_of(cluster: Cluster) -> Server:
    """For tests that choose which cluster it is."""
    return Server(cluster.kubeconfig, cluster.namespace, cluster.fake, cluster)


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    """An API server without anything of a test."""
    with FakeApi() as server:
        yield server


@pytest.fixture
def fake_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """For what only a fake one can be told to do. Its ``fake`` is there."""
    with FakeApi() as api:
        made = make_cluster("fake", api.kubeconfig(tmp_path / "kubeconfig"), tmp_path, fake=api)
        try:
            yield made
        finally:
            made.close()
