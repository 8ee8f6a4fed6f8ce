"""Fixtures: a fake scheduler service, and a real Jupyter server that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.jupyter.fake_service import FakeService
from tests.integration.jupyter.server import Server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeService, Server]]:
    """One pair for the tests of a module: a server takes seconds to start."""
    home = tmp_path_factory.mktemp("jupyter")
    with FakeService(home / "gpufair") as fake, Server(home / "home", fake.folder) as running:
        running.kernels_ready()
        yield fake, running


@pytest.fixture
def service(shared: tuple[FakeService, Server]) -> Iterator[FakeService]:
    fake = shared[0]
    fake.queueing = False
    yield fake
    for workload, run in list(fake.runs.items()):
        if run.view["state"] != "ended":
            fake.end(workload, "the test is over")


@pytest.fixture
def server(shared: tuple[FakeService, Server], service: FakeService) -> Server:
    return shared[1]


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[FakeService]:
    """For tests that stop servers."""
    with FakeService(tmp_path / "gpufair") as fake:
        yield fake
