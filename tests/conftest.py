"""Plugins that all suites share. (Pytest takes them from the topmost conftest only.)"""

from __future__ import annotations

import os
from collections.abc import Iterator

# Hypothesis' plugin imports it in the last summary of a run otherwise, so deep in the stack that Python 3.11's parser
# can fail there ("AST constructor recursion depth mismatch") and take the exit code with it.
import hypothesis  # noqa: F401
import pytest

# Runs `async def` tests, and brings real Jupyter servers as fixtures.
pytest_plugins = ["pytest_jupyter.jupyter_server"]


# What would lead a test to a real service or its settings; other GPUFAIR_* variables steer the tests themselves.
SETTINGS = ("GPUFAIR_URL", "GPUFAIR_TOKEN", "GPUFAIR_CONFIG", "GPUFAIR_STATE_DIR", "GPUFAIR_USER")


@pytest.fixture(autouse=True, scope="session")
def _a_state_folder_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test meets the developer's own service, and none leaves one of its own behind."""
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(SETTINGS)]:
            patch.delenv(name)
        patch.setenv("GPUFAIR_STATE_DIR", str(state))
        yield
    assert not (state / "service.json").exists(), "a test started an embedded service and left it running"
