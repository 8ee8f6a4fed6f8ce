"""A command's log is one text over all of its starts, whatever the pages it is read in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.node.logs import log_path, read_log


def write(folder: Path, *starts: str, rank: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(starts, 1):
        log_path(folder, number, rank).write_text(text, encoding="utf-8")


def test_nothing_was_written(tmp_path: Path) -> None:
    page = read_log(tmp_path / "none", 0, 0, 100)
    assert (page.text, page.after, page.size_bytes, page.ranks) == ("", 0, 0, ())


def test_starts_follow_each_other_in_their_order(tmp_path: Path) -> None:
    """The tenth after the ninth, not after the first."""
    write(tmp_path, *(f"start {number}\n" for number in range(1, 12)))
    assert read_log(tmp_path, 0, 0, 1 << 20).text.split("\n")[8:11] == ["start 9", "start 10", "start 11"]


def test_each_node_has_its_own(tmp_path: Path) -> None:
    write(tmp_path, "first\n")
    write(tmp_path, "second\n", rank=1)
    assert read_log(tmp_path, 1, 0, 100).text == "second\n"
    assert read_log(tmp_path, 0, 0, 100).ranks == (0, 1)


def test_a_beginning_beyond_the_end_is_the_end(tmp_path: Path) -> None:
    """Whoever follows asks again where he was."""
    write(tmp_path, "abc")
    assert (read_log(tmp_path, 0, 3, 100).text, read_log(tmp_path, 0, 99, 100).after) == ("", 3)
    assert read_log(tmp_path, 0, -2, 100).text == "bc"
    assert read_log(tmp_path, 0, -99, 100).text == "abc"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40), max_size=4), st.integers(4, 64))
def test_pages_make_up_the_whole(tmp_path_factory: pytest.TempPathFactory, starts: list[str], limit: int) -> None:
    """No character is cut, none is lost, none comes twice."""
    folder = tmp_path_factory.mktemp("log")
    write(folder, *starts)
    after, found = 0, ""
    while (page := read_log(folder, 0, after, limit)).after > after:
        after, found = page.after, found + page.text
    assert found.encode() == "".join(starts).encode()
    assert after == page.size_bytes


def test_what_is_no_text_is_shown_all_the_same(tmp_path: Path) -> None:
    """A program may write anything."""
    tmp_path.mkdir(exist_ok=True)
    log_path(tmp_path, 1, 0).write_bytes(b"\xff\xfe\x80" * 50)
    after = 0
    while (page := read_log(tmp_path, 0, after, 7)).after > after:
        after = page.after
    assert after == 150
