"""Write the tables of docs/saved-objects.md anew: ``python -m tests.unit.checkpoint.kinds``."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.page import PAGE, renewed

PAGE.write_text(renewed(PAGE.read_text()))
