"""Open files come back where nobody has changed them, and never lose a byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.checkpoint.two_processes import TwoProcesses


@pytest.fixture
def place(tmp_path: Path) -> TwoProcesses:
    return TwoProcesses(tmp_path / "place")


def test_a_file_for_writing_goes_on_where_it_was_and_is_not_truncated(place: TwoProcesses) -> None:
    saved = place.save("f = open(WORK + '/log', 'w'); f.write('one\\n'); g = open(WORK + '/new', 'x'); g.write('n')")
    assert saved["lost"] == {}
    back = place.restore({"go on": "f.write('two\\n'); f.close(); g.write('m'); g.close()"})
    assert back["answers"] == {"go on": "ok"}
    assert (place.work / "log").read_text() == "one\ntwo\n"
    assert (place.work / "new").read_text() == "nm"


def _grown(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def _replaced(path: Path) -> None:
    content, times = path.read_bytes(), path.stat()
    other = path.with_name("other")
    other.write_bytes(content)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


def _gone(path: Path) -> None:
    path.unlink()


def _rewritten(path: Path) -> None:
    path.write_text("ONE\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [(_grown, "has changed"), (_replaced, "is not the file"), (_gone, "cannot be opened"), (_rewritten, "has changed")],
)
@pytest.mark.parametrize("mode", ["r", "w", "a", "r+"])
def test_a_file_that_has_changed_is_named_and_left_alone(
    mode: str, change: Callable[[Path], None], words: str, place: TwoProcesses
) -> None:
    path = place.work / "log"
    place.save(f"open(WORK + '/log', 'w').write('one\\n'); f = open(WORK + '/log', {mode!r}); other = [1]")
    change(path)
    content = path.read_bytes() if path.exists() else None
    back = place.restore({"others": "assert other == [1]"})
    assert back["answers"] == {"others": "ok"}
    assert words in back["lost"]["f"]
    assert (path.read_bytes() if path.exists() else None) == content


def test_a_mapped_file_that_has_changed_is_named(place: TwoProcesses) -> None:
    pytest.importorskip("numpy")
    place.save("import numpy as np; m = np.memmap(WORK + '/m', 'u1', 'w+', shape=10); part = m[2:4]")
    _grown(place.work / "m")
    back = place.restore({})
    assert "has changed" in back["lost"]["m"]
    assert "part" in back["lost"]
