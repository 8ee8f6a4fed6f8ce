"""The file of assumptions: what ships is complete, and what a user writes is checked to the key."""

from __future__ import annotations

import pytest

from gpufair.sim.assumptions import AssumptionsError, parse_assumptions, read_assumptions, usual
from gpufair.sim.costs import USUAL


def test_what_ships_charges_the_usual_costs():
    """The engine's defaults and the file say one thing."""
    assert usual().costs.engine() == USUAL


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path):
    """Somebody who knows his launch times need not know the rest."""
    file = tmp_path / "mine.toml"
    file.write_text("[costs]\nlaunch_s = [5, 5.5]\n[batch]\nnon_resumable = 0\n")
    mine = read_assumptions(file)
    assert (mine.costs.engine().launch_least, mine.costs.engine().launch_most) == (5_000, 5_500)
    assert mine.batch.non_resumable == 0
    assert (mine.session, mine.costs.stop_s) == (usual().session, usual().costs.stop_s)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("costs = 1", "written as [costs]"),
        ("[cost]\nstop_s = 1", "unknown table [cost]; known are costs, "),
        ("[costs]\nstop = 1", "[costs] has no 'stop'; it has launch_s, "),
        ("[costs]\nstop_s = '2s'", "[costs] stop_s = 2s: expected a number from 0"),
        ("[costs]\nstop_s = -1", "expected a number from 0"),
        ("[costs]\nstop_s = nan", "expected a number from 0"),
        ("[costs]\nstop_s = true", "expected a number from 0"),
        ("[costs]\nlaunch_s = [60, 15]", "the least and the most"),
        ("[costs]\nlaunch_s = 15", "a list"),
        ("[debug]\npriority = 1.5", "a whole number"),
        ("[debug]\ngpus = [[1, 0]]", "pairs of a value"),
        ("[debug]\ngpus = [1, 2]", "pairs of a value"),
        ("[debug]\ngpus = [[0, 1]]", "a number from 1"),
        ("[batch]\nsteps_s = [3600, 1800]", "rising numbers"),
        ("[batch]\nsteps_s = []", "rising numbers"),
        ("[batch]\nshortest = 0.6\nlongest = 0.6", "more than 1"),
        ("[batch]\ngpu_time = [[1, 0.6], [2, 0.6]]", "more than 1"),
        ("[state]\nleast_gib = 90", "above most_gib"),
        ("[state", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(text, says):
    """By file, table and key, with what is expected."""
    with pytest.raises(AssumptionsError) as raised:
        parse_assumptions(text, "mine.toml")
    assert str(raised.value).startswith("mine.toml: ")
    assert says in str(raised.value)


def test_a_file_that_cannot_be_one_is_refused(tmp_path):
    """Missing, no text, or far too large."""
    with pytest.raises(AssumptionsError, match="cannot be read"):
        read_assumptions(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(AssumptionsError, match="not UTF-8"):
        read_assumptions(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * 100_000)
    with pytest.raises(AssumptionsError, match="is larger than"):
        read_assumptions(tmp_path / "large.toml")
