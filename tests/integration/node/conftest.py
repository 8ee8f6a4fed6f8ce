"""A node for each test, and one with a running kernel for those that leave it as it was."""

import pytest

from tests.integration.node.rig import Rig


@pytest.fixture
def make_rig(tmp_path):
    """Rigs with options; all are gone afterwards."""
    made: list[Rig] = []

    def make(**options):
        rig = Rig(tmp_path / f"rig{len(made)}", **options)
        made.append(rig)
        rig.service.start()
        rig.start_agent()
        rig.service.wait_hello(1)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig):
    return make_rig()
