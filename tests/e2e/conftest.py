"""Fixtures of the browser tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import CHROMIUM, Chromium

Look = Callable[[Callable[..., Any]], Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = pytest.mark.skip(reason=f"no browser at {CHROMIUM}; set GPUFAIR_CHROMIUM")
    # Where nothing may be left out, a missing browser fails each test by itself.
    tolerant = os.environ.get("GPUFAIR_REQUIRE_ALL") != "1"
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if tolerant and not Path(CHROMIUM).exists():
                item.add_marker(missing)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """Of the tests of one file; started by the first that looks."""
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture
def ui(chromium: Chromium, tmp_path: Path) -> Look:
    """Runs a function of one page in a real browser; a failing one leaves a screenshot."""
    return lambda look: chromium.look(look, tmp_path / "failed.png")
