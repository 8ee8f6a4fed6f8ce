"""What files of these tests share that have one world for all of their tests, as ``module_world``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.faults.rig import World


@pytest.fixture
def world(module_world: World) -> Iterator[World]:
    """The file's world; nothing is left in it for the next test, and its books add up."""
    yield module_world
    module_world.stop_all()
    module_world.check_ledger()
