"""What is said of objects that cannot be saved, and that they fail nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint.codecs import registry
from tests.unit.checkpoint.two_processes import KEY

# name: (cell that makes variable x, words that its reason must hold)
FAILING: dict[str, tuple[str, list[str]]] = {
    "generator": ("x = (i for i in range(3))", ["generator", "list"]),
    "lock": ("import threading; x = threading.Lock()", ["lock", "process"]),
    "re-entrant lock": ("import threading; x = threading.RLock()", ["lock"]),
    "event": ("import threading; x = threading.Event()", ["lock", "x._cond._lock"]),
    "thread": ("import threading; x = threading.Thread(target=print)", ["thread", "start it again"]),
    "socket": ("import socket; x = socket.socket()", ["socket", "connect again"]),
    "text file": ("x = open('/dev/null')", ["open pipe, terminal or device", "open it again"]),
    "binary file": ("x = open('/dev/null', 'rb')", ["device", "open it again"]),
    "database": ("import sqlite3; x = sqlite3.connect(':memory:')", ["database connection", "connect again"]),
    "pool": ("from concurrent.futures import ThreadPoolExecutor; x = ThreadPoolExecutor(1)", ["pool of workers"]),
    "process": ("import subprocess; x = subprocess.Popen(['true']); x.wait()", ["running process"]),
    "coroutine": ("async def c(): ...\nx = c()", ["coroutine", "await"]),
    "weak reference of a class of its own": (
        "import weakref\nclass R(weakref.ref): ...\nclass C: ...\nc = C(); x = R(c)",
        ["weak reference", "codec"],
    ),
    "weak reference to what cannot be saved": (
        "import threading, weakref\nclass C:\n  def __init__(self): self.lock = threading.Lock()\nc = C(); x = weakref.ref(c)",
        ["lock"],
    ),
    "deleted file": (
        "import os, tempfile\nfd, at = tempfile.mkstemp(); os.close(fd); x = open(at, 'w'); os.remove(at)",
        ["deleted", "file that stays"],
    ),
    "temporary file": ("import tempfile; x = tempfile.NamedTemporaryFile()", ["temporary file", "file that stays"]),
    "file in the middle of a for loop": (
        "x = open('/etc/passwd'); next(x)",
        ["position cannot be known", "open it again"],
    ),
    "compressed file": (
        "import gzip, tempfile; x = gzip.open(tempfile.mkdtemp() + '/a.gz', 'wb')",
        ["open file", "open it again"],
    ),
    "pipe": ("import os; _r, _w = os.pipe(); x = os.fdopen(_r); os.close(_w)", ["pipe", "open it again"]),
    "async generator": ("async def a():\n  yield 1\nx = a()", ["generator"]),
    "running task": (
        "import asyncio\nloop = asyncio.new_event_loop(); x = loop.create_future(); loop.close()",
        ["asyncio task or future", "await it"],
    ),
    "thread-local data": ("import threading; x = threading.local(); x.a = 1", ["thread-local", "create it again"]),
    "queue": ("import queue; x = queue.Queue(); x.put(1)", ["lock"]),
    "simple queue": ("import queue; x = queue.SimpleQueue()", ["queue between threads", "list"]),
    "cursor of a database": (
        "import sqlite3; _c = sqlite3.connect(':memory:'); x = _c.cursor()",
        ["database connection", "connect again"],
    ),
    "certificate context": ("import ssl; x = ssl.create_default_context()", ["socket", "connect again"]),
    "log handler": ("import logging; x = logging.StreamHandler()", ["lock"]),
    "widget": ("import ipywidgets; x = ipywidgets.IntSlider()", ["widget", "run its cell again"]),
    "codec that fails": (
        "import gpufair, threading\nclass K:\n  def __init__(self): self.l = threading.Lock()\n"
        "@gpufair.codec(K)\ndef save(k): raise RuntimeError('no address')\nx = K()",
        ["RuntimeError: no address"],
    ),
    "memoryview": ("x = memoryview(b'abc')", ["memoryview", "bytes(view)"]),
    "memory map": ("import mmap; x = mmap.mmap(-1, 10)", ["memory mapped"]),
    "context variable": ("import contextvars; x = contextvars.ContextVar('v')", ["context variable"]),
    "frame": ("import sys; x = sys._getframe()", ["stack frame"]),
    "lock deep inside": (
        "import threading\nclass Engine:\n  def __init__(self): self.parts = {'pump': [0, threading.Lock()]}\nx = Engine()",
        ["lock", "x.parts['pump'][1]"],
    ),
    "lock in a closure": (
        "import threading\ndef make():\n  guard = threading.Lock()\n  return lambda: guard\nx = make()",
        ["lock", "guard"],
    ),
    "long chain": ("x = []\nfor _ in range(100_000): x = [x]", ["nested too deeply"]),
    "reducer that raises": (
        "class R:\n  def __reduce__(self): raise OSError('no luck')\nx = R()",
        ["OSError: no luck"],
    ),
    "reducer that exits": ("class R:\n  def __reduce__(self): raise SystemExit(3)\nx = R()", ["SystemExit: 3"]),
    "reducer that interrupts": (
        "class R:\n  def __reduce__(self): raise KeyboardInterrupt\nx = R()",
        ["KeyboardInterrupt"],
    ),
    "reducer without memory": ("class R:\n  def __reduce__(self): raise MemoryError\nx = R()", ["not enough memory"]),
    "error that cannot be printed": (
        "class E(Exception):\n  def __str__(self): raise ValueError\nclass R:\n  def __reduce__(self): raise E\nx = R()",
        ["R cannot be pickled (E)"],
    ),
    "reducer of nonsense": ("class R:\n  def __reduce__(self): return 5\nx = R()", ["R cannot be pickled"]),
    "class that lies about itself": (
        "class L:\n  __class__ = property(lambda self: 1 / 0)\n  def __reduce__(self): raise TypeError('never')\nx = L()",
        ["L cannot be pickled"],
    ),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.filterwarnings("ignore:coroutine 'c' was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loss_is_named_with_reason_and_fails_nothing_else(
    kind: str, session: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """The neighbours share objects with the failing one on purpose: what it left in the memo must not reach them."""
    if kind == "widget":
        pytest.importorskip("ipywidgets")
    cell, words = FAILING[kind]
    namespace = session(f"common = [1, 2]\n{cell}\nmixed = [common, x]\nafter = {{'common': common}}")
    try:
        result = checkpoint.save(namespace, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={})
        lost = dict(result.lost)
        assert {"x", "mixed"} <= set(lost)
        assert all(word in lost["x"] for word in words), lost["x"]
        assert "Traceback" not in lost["x"]
        back: dict[str, Any] = {}
        restored = checkpoint.load(back, directory=str(tmp_path), id="c", key=KEY)
        assert back["after"]["common"] is back["common"] == [1, 2]
        assert {"x", "mixed"} <= {name for name, _ in restored.lost}
        assert not {"x", "mixed"} & set(back)
    finally:
        x = namespace.pop("x")
        registry._user.clear()
        if type(x).__module__ != "__main__" and hasattr(x, "close"):
            x.close()


def test_names_of_ipython_are_left_out_and_hidden_ones(tmp_path: Path) -> None:
    own = dict.fromkeys(["_", "__", "___", "_i", "_ii", "_iii", "_i12", "_7", "_oh", "_dh", "_ih", "_sh", "_exit_code"])
    namespace: dict[Any, Any] = {
        **own,
        "get_ipython": print,
        "__doc__": "",
        5: "no name",
        "x": 1,
        "_x": 2,
        "_i_love": 3,
    }
    result = checkpoint.save(
        namespace, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={}, hidden=frozenset({"get_ipython"})
    )
    assert sorted(result.saved) == ["_i_love", "_x", "x"]
    assert result.lost == ()


def _generator() -> Iterator[int]:
    yield 1


def test_extras_come_back_with_their_identities_within_their_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old outputs are mostly the variables themselves; they must neither double the checkpoint nor outgrow it."""
    monkeypatch.setattr("gpufair.node.checkpoint.capture.EXTRA_BUDGET_BYTES", 60_000)
    frame = [b"x" * 60_000]
    extras = [("Out:3", frame), ("Out:2", _generator()), ("Out:1", b"y" * 40_000), ("Out:0", b"z" * 40_000)]
    result = checkpoint.save({"f": frame}, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={}, extras=extras)
    assert result.lost == ()
    back: dict[str, Any] = {}
    restored = checkpoint.load(back, directory=str(tmp_path), id="c", key=KEY)
    assert set(restored.extras) == {"Out:3", "Out:1"}
    assert restored.extras["Out:3"] is back["f"]
    assert result.size_bytes < 160_000
