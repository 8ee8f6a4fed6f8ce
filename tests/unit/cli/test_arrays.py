"""Arrays of runs: all combinations, or a sentence that says how to write them."""

from __future__ import annotations

import pytest

from gpufair.cli.arrays import BadArray, members


def test_without_an_array_there_is_one() -> None:
    (only,) = members([])
    assert (only.index, only.size, only.values) == (0, 1, ())


def test_all_combinations_in_the_order_of_writing() -> None:
    found = [one.fill("--lr={lr} --seed={seed} {index} {other}") for one in members(["lr=0.1,0.01", "seed=3-4"])]
    assert found == [
        "--lr=0.1 --seed=3 0 {other}",
        "--lr=0.1 --seed=4 1 {other}",
        "--lr=0.01 --seed=3 2 {other}",
        "--lr=0.01 --seed=4 3 {other}",
    ]
    assert members(["lr=0.1,0.01"])[1].label("train.py") == "train.py[lr=0.01]"
    assert members(["lr=0.1,0.01"])[1].environment() == {"GPUFAIR_ARRAY_INDEX": "1", "GPUFAIR_ARRAY_SIZE": "2"}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (["lr"], "write it as NAME=VALUE,VALUE"),
        (["lr="], "write it as NAME=VALUE,VALUE"),
        (["a b=1"], "write it as NAME=VALUE,VALUE"),
        (["index=1"], "write it as NAME=VALUE,VALUE"),
        (["lr=1", "lr=2"], "lr is there twice"),
        (["seed=9-0"], "counts backwards; write 0-9"),
        (["seed=0-99999999999"], "more than 10000 values"),
        (["a=0-999", "b=0-999"], "has 1000000 members and may have 10000"),
    ],
)
def test_what_is_wrong_is_said(arrays: list[str], says: str) -> None:
    with pytest.raises(BadArray, match=says):
        members(arrays)


def test_what_looks_like_a_range_and_is_none_is_a_value() -> None:
    assert [dict(one.values)["x"] for one in members(["x=-1,a-b,1e-3,2-"])] == ["-1", "a-b", "1e-3", "2-"]
