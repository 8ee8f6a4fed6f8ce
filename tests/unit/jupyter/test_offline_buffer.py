"""What a server keeps for a page that is away is bounded, for a cell may print all night."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_gpufair import manager
from jupyter_gpufair.manager import OFFLINE_BYTES, GpufairKernelManager


class Stream:
    """A zmq stream."""

    def __init__(self) -> None:
        self.receive: Any = None
        self.closed = False
        self.socket = self

    def on_recv(self, receive: Any) -> None:
        self.receive = receive

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def kernels() -> GpufairKernelManager:
    kernels = GpufairKernelManager()
    kernels._kernels["k"] = object()
    return kernels


@pytest.mark.parametrize("ours", [True, False])
async def test_too_much_is_given_up(kernels: GpufairKernelManager, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    """Kernels of others are left as they are: nobody records what they say."""
    monkeypatch.setattr(manager, "session_of", lambda _: object() if ours else None)
    stream = Stream()
    kernels.start_buffering("k", "k:page", {"iopub": stream})
    for _ in range(20):
        if stream.receive is not None:
            stream.receive([b"x" * (OFFLINE_BYTES // 10)])
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert stream.closed is ours
    kept = kernels.get_buffer("k", "k:page")
    assert (kept is None) is ours
    if kept is not None:
        assert len(kept["buffer"]) == 20


async def test_what_fits_is_kept(kernels: GpufairKernelManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was away for a moment gets its messages as ever."""
    monkeypatch.setattr(manager, "session_of", lambda _: object())
    stream = Stream()
    kernels.start_buffering("k", "k:page", {"iopub": stream})
    stream.receive([b"a", b"b"])
    await asyncio.sleep(0.01)
    found = kernels.get_buffer("k", "k:page")
    assert found is not None
    assert list(found["buffer"]) == [("iopub", [b"a", b"b"])]
    assert not stream.closed
