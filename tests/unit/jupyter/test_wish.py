"""What a notebook's metadata asks for."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpufair import wish
from jupyter_gpufair.wish import BadNotebook, BadWish, wish_of


def notebook(folder: Path, metadata: Any) -> str:
    path = folder / "a.ipynb"
    path.write_text(json.dumps({"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return str(path)


def test_a_request_is_read_as_it_is(tmp_path: Path) -> None:
    asked = {"gpus": 2, "nodes": 1, "allocation": "a/b", "gpu_type": "H200", "min_runtime_s": 1.5}
    assert wish_of(notebook(tmp_path, {"gpufair_request": asked})) == asked


@pytest.mark.parametrize("metadata", [{}, {"kernelspec": {}}, [], None])
def test_most_notebooks_ask_for_nothing(tmp_path: Path, metadata: Any) -> None:
    assert wish_of(notebook(tmp_path, metadata)) == {}


def test_what_is_no_file_here_asks_for_nothing(tmp_path: Path) -> None:
    """A console, and a file elsewhere."""
    for name in ("", "console-1", str(tmp_path / "none.ipynb")):
        assert wish_of(name) == {}


@pytest.mark.parametrize("length", [0, 1, 25, 70, -1])
def test_one_that_is_being_saved_is_waited_for(tmp_path: Path, length: int) -> None:
    """Jupyter truncates the file and writes it anew, while the kernel of a notebook that was just opened is started."""
    path = Path(notebook(tmp_path, {"gpufair_request": {"gpus": 2}}))
    whole = path.read_text()
    path.write_text(whole[:length])
    found: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: found.append(wish_of(str(path))))
    reading.start()
    time.sleep(3 * wish.AGAIN_S)  # the reader has seen the half, or sees the whole at once: both must do
    path.write_text(whole)
    reading.join(30)
    assert found == [{"gpus": 2}]


@pytest.mark.parametrize("text", ["", '{"metadata": {"gpufair_', "[" * 100_000, "\0"], ids=["empty", "half", "deep", "binary"])
def test_one_that_stays_broken_is_named(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel is not started with something else than what it may ask for."""
    monkeypatch.setattr(wish, "SAVED_S", 0.1)
    (tmp_path / "half.ipynb").write_text(text)
    with pytest.raises(BadNotebook, match=r"half\.ipynb was read .* no notebook .*save it again"):
        wish_of(str(tmp_path / "half.ipynb"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([1], "has gpufair_request = [1]; give an object with some of allocation, gpus"),
        ({"gpus": "2"}, 'has gpufair_request.gpus = "2"; give a whole number'),
        ({"gpus": True}, "has gpufair_request.gpus = true; give a whole number"),
        ({"gpu": 2}, "has gpufair_request.gpu = 2; known are allocation, gpus"),
        ({"allocation": "x" * 200}, None),
        ({"allocation": ["x" * 200]}, "…; give a path"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(tmp_path: Path, asked: Any, said: str | None) -> None:
    """The kernel is not started with something else than what was meant; a long value is cut."""
    path = notebook(tmp_path, {"gpufair_request": asked})
    if said is None:
        assert wish_of(path) == asked
        return
    with pytest.raises(BadWish, match=r"the metadata of a\.ipynb") as caught:
        wish_of(path)
    assert said in str(caught.value)
