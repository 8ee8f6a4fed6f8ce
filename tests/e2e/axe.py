"""axe-core on a page: what keeps people with other senses or hands out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"

needs_axe = pytest.mark.skipif(
    not AXE.exists() and os.environ.get("GPUFAIR_REQUIRE_ALL") != "1",
    reason="no axe-core; run `npm ci` in labextension",
)


def violations(page: Page, within: str = "html") -> list[tuple[str, str]]:
    """(rule, element) of all that axe finds within a selector's elements; it must have had something to look at."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("within => axe.run({include: [[within]]}, {resultTypes: ['violations']})", within)
    assert found["passes"], f"nothing was looked at within {within}"
    return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
