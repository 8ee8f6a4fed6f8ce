"""Checkpoints in S3: a real server over HTTP (moto's, which lives in an environment of its own), a real client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint import CheckpointFailed, StoreOptions
from gpufair.node.checkpoint.folder import open_store
from tests.integration.s3 import s3_server

numpy = pytest.importorskip("numpy")
pytest.importorskip("obstore")

KEY = b"the key of one user, 32 bytes ok"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_server():
        yield "s3://lab/ada"


def save(directory: str, number: int, session: dict[str, Any], **options: Any) -> checkpoint.SaveResult:
    return checkpoint.save(
        session,
        directory=directory,
        id=f"c{number}",
        sequence=number,
        key=KEY,
        meta={},
        options=StoreOptions(**options),
    )


def restored(directory: str, number: int) -> dict[str, Any]:
    back: dict[str, Any] = {}
    assert not checkpoint.load(back, directory=directory, id=f"c{number}", key=KEY).lost
    return back


@pytest.mark.parametrize("encryption", [False, True])
def test_a_session_in_s3(bucket: str, encryption: bool) -> None:
    directory = f"{bucket}/{encryption}"
    session: dict[str, Any] = {"a": numpy.random.default_rng(1).random(2 << 20), "n": 0}
    assert checkpoint.latest(directory, KEY) is None
    for number in (1, 2, 3):
        session["n"] = number
        written = save(directory, number, session, encryption=encryption).written_bytes
        assert (written > 16 << 20) == (number == 1), "the array goes there once"
    with pytest.raises(CheckpointFailed, match="already there"):
        save(directory, 3, session, encryption=encryption)
    assert [info.id for info in checkpoint.listing(directory, KEY)] == ["c1", "c2", "c3"]
    back = restored(directory, 2)
    assert (back["n"], (back["a"] == session["a"]).all()) == (2, True)
    assert checkpoint.prune(directory, KEY, keep=1) == ["c1", "c2"]
    assert checkpoint.verify(directory, "c3", KEY).encrypted == encryption
    session["a"] = session["a"][: 1 << 20].copy()
    save(directory, 4, session, encryption=encryption)
    assert checkpoint.prune(directory, KEY, keep=1) == ["c3"]
    info = checkpoint.verify(directory, "c4", KEY)
    store = open_store(directory)
    assert sum(store.buffers().values()) == info.stored_bytes, "the second half is swept away"
    assert restored(directory, 4)["n"] == 3
    with pytest.raises(CheckpointFailed, match=r"of this user may take 9 MiB"):
        save(directory, 5, session | {"b": numpy.random.default_rng(2).random(1 << 20)}, user_bytes=9 << 20)
    assert sum(store.buffers().values()) == info.stored_bytes, "nothing is left of what was not finished"
    assert restored(directory, 4)["n"] == 3


def test_writers_and_sweeps_keep_out_of_each_others_way(bucket: str) -> None:
    directory = f"{bucket}/notes"
    save(directory, 1, {"a": numpy.random.default_rng(1).random(50_000)})
    store, sweeper = open_store(directory), open_store(directory)
    store.put("0" * 64, b"not named by any manifest yet")
    store.create("c2")
    assert sweeper.sweep(set) == [], "somebody writes"
    store.release("c2")
    seen: list[bool] = []

    def needed() -> set[str]:
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gpufair.node.checkpoint.remote._WAIT_S", 1.0)
            with pytest.raises(BlockingIOError):
                store.create("c2")
        seen.append(time.monotonic() - began >= 1.0)
        return set(store.buffers()) - {"0" * 64}

    assert sweeper.sweep(needed) == ["0" * 64]
    assert seen == [True], "a writer waits for the sweep"
    assert checkpoint.verify(directory, "c1", KEY).sequence == 1


def test_a_store_that_cannot_be_reached_is_a_clear_error(bucket: str) -> None:
    with pytest.raises(CheckpointFailed, match="no-such-bucket"):
        save("s3://no-such-bucket/x", 1, {"n": 1})
