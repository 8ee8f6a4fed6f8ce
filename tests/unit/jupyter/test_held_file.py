"""The file of what waits: one owner, bounded, and found by whoever comes next."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jupyter_gpufair import held_file
from jupyter_gpufair.cell import Cell
from jupyter_gpufair.held_file import KEEP_S, HeldFile, NotKept, files, prune


def cell(msg_id: str, code: str = "1", *buffers: bytes) -> Cell:
    header = {"msg_id": msg_id, "session": "c", "msg_type": "execute_request"}
    return Cell.of(
        [json.dumps(header).encode(), b"{}", b'{"cellId":"a"}', json.dumps({"code": code}).encode(), *buffers]
    )


def ids(file: HeldFile) -> list[str]:
    return [cell.msg_id for cell in file.cells]


def test_a_cell_comes_back_as_it_was(tmp_path: Path) -> None:
    """Byte for byte: its signature is made anew, its content is the user's."""
    file = HeldFile(tmp_path / "held", "k")
    was = cell("a", "print('é\\udc80')", b"\x00\xff")
    file.hold(was)
    file.close(forget=False)
    [now] = HeldFile(tmp_path / "held", "k").cells
    assert (now.parts, now.header, now.client, now.cell_id) == (was.parts, was.header, was.client, "a")
    [path] = files(tmp_path / "held", "k")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_two_living_servers_do_not_take_each_others_cells(tmp_path: Path) -> None:
    first, second = HeldFile(tmp_path, "k"), HeldFile(tmp_path, "k")
    first.hold(cell("a"))
    second.hold(cell("b"))
    third = HeldFile(tmp_path, "k")
    assert ids(third) == []
    first.close(forget=False)
    second.close(forget=False)
    fourth = HeldFile(tmp_path, "k")
    assert ids(fourth) == ["a", "b"]
    assert len(files(tmp_path, "k")) == 1
    fourth.over("a")
    fourth.close(forget=False)
    assert ids(HeldFile(tmp_path, "k")) == ["b"]


async def test_it_does_not_grow_with_what_is_over(tmp_path: Path) -> None:
    """A notebook that runs for a month must not fill the disk with what it ran."""
    file = HeldFile(tmp_path, "k")
    file.hold(cell("stays"))
    for i in range(300):
        file.hold(cell(f"m{i}", "x" * 5000))
        file.over(f"m{i}")
        assert await file.synced()
    [path] = files(tmp_path, "k")
    assert path.stat().st_size < 3 * held_file.SLACK
    file.close(forget=False)
    assert ids(HeldFile(tmp_path, "k")) == ["stays"]


def test_a_full_disk_is_told_and_spoils_one_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HeldFile(tmp_path, "k")
    file.hold(cell("a"))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
        with pytest.raises(NotKept, match="the disk is full"):
            file.hold(cell("b"))
    file.hold(cell("c"))
    file.close(forget=False)
    assert ids(HeldFile(tmp_path, "k")) == ["a", "c"]


def test_what_nobody_came_back_to_is_deleted(tmp_path: Path) -> None:
    for kernel in ("old", "new", "used"):
        file = HeldFile(tmp_path, kernel)
        file.hold(cell("a"))
        if kernel != "used":
            file.close(forget=False)
    for kernel in ("old", "used"):
        os.utime(tmp_path / f"{kernel}.1.jsonl", (0, 0))
    prune(tmp_path, KEEP_S + 1)
    assert [path.name for path in files(tmp_path)] == ["new.1.jsonl", "used.1.jsonl"]
