"""A fake service for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.fake_service import FakeService, serving


@pytest.fixture
def fake() -> Iterator[FakeService]:
    with serving() as service:
        yield service
