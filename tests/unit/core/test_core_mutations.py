"""The list of broken rules is kept up to date: each still applies, and says which laws must notice."""

from __future__ import annotations

import pytest

from tests.mutations import MUTATIONS, ROOT, Mutation, applies


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.rule[:40])
def test_a_mutation_still_applies(mutation: Mutation) -> None:
    """If this fails, the line that the mutation breaks was changed: break the new one in ``tests/mutations.py``."""
    assert applies(mutation), f"{mutation.file} no longer has {mutation.old!r}"
    assert mutation.old != mutation.new
    assert mutation.laws


def test_there_is_one_for_every_rule() -> None:
    """And none twice."""
    assert len(MUTATIONS) >= 30
    assert (
        len({one.rule for one in MUTATIONS})
        == len({(one.file, one.old, one.new) for one in MUTATIONS})
        == len(MUTATIONS)
    )


def test_the_list_for_readers_is_the_list() -> None:
    """``tests/property/MUTATIONS.md`` names each rule and its laws."""
    text = (ROOT / "tests/property/MUTATIONS.md").read_text(encoding="utf-8")
    rows = [f"| {number} | {one.rule} | `{one.file}` | `{one.laws}` |" for number, one in enumerate(MUTATIONS, 1)]
    assert [row for row in rows if row not in text] == []
