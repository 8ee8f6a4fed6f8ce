"""Which kinds of objects survive a move to another process, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from tests.unit.checkpoint.conftest import KEY

# name: (cell that makes it, statement that must hold after the restore)
KINDS: dict[str, tuple[str, str]] = {
    "integer": ("n = 10**40", "assert n == 10**40"),
    "text with surrogates": ("t = 'aé\\ud800'", "assert t == 'aé\\ud800'"),
    "bytes": ("b = bytes(range(256)) * 1000", "assert b == bytes(range(256)) * 1000"),
    "large bytearray": ("ba = bytearray(b'x' * 300_000)", "ba[0] = 1; assert len(ba) == 300_000"),
    "nan": ("f0 = float('nan')", "assert f0 != f0"),
    "nested containers": (
        "c = {'a': [1, (2, {3}), frozenset({4})]}",
        "assert c == {'a': [1, (2, {3}), frozenset({4})]}",
    ),
    "recursive list": ("r = [1]; r.append(r)", "assert r[1] is r"),
    "recursive dict": ("rd = {}; rd['me'] = rd", "assert rd['me'] is rd"),
    "one list under two names": ("one = [1]; two = one", "assert one is two; one.append(2); assert two == [1, 2]"),
    "a list inside another variable": ("inner = [1]; outer = {'i': inner}", "assert outer['i'] is inner"),
    "defaultdict": (
        "from collections import defaultdict; dd = defaultdict(list, a=[1])",
        "dd['new'].append(1); assert dd == {'a': [1], 'new': [1]}",
    ),
    "counter, deque, ordered dict": (
        "import collections; cs = [collections.Counter('aab'), collections.deque([1], 3), collections.OrderedDict(z=1)]",
        "assert cs[0]['a'] == 2 and cs[1].maxlen == 3 and list(cs[2]) == ['z']",
    ),
    "named tuple of the notebook": (
        "P = collections.namedtuple('P', 'x y'); p = P(1, 2)",
        "assert p.y == 2 and isinstance(p, P)",
    ),
    "dates and decimals": (
        "import datetime, decimal, fractions, uuid, pathlib\n"
        "many = [datetime.datetime(2026, 1, 2), decimal.Decimal('1.10'), fractions.Fraction(1, 3), uuid.UUID(int=5), "
        "pathlib.Path('a/b')]",
        "assert many == [datetime.datetime(2026, 1, 2), decimal.Decimal('1.10'), fractions.Fraction(1, 3), "
        "uuid.UUID(int=5), pathlib.Path('a/b')]",
    ),
    "module": ("import math as m", "assert m.pi > 3"),
    "function of a module": ("from math import sin", "assert sin(0) == 0"),
    "function": ("def double(v): return 2 * v", "assert double(4) == 8"),
    "function that sees later globals": (
        "K = 10\ndef read_k(): return K",
        "assert read_k() == 10; K = 11; assert read_k() == 11; assert read_k.__globals__ is globals()",
    ),
    "function that mentions what is lost": (
        "stream = (i for i in range(3))\ndef uses_stream(): return next(stream)",
        "assert 'stream' not in globals(); stream = iter([7]); assert uses_stream() == 7",
    ),
    "recursive function": ("def fact(v): return 1 if v < 2 else v * fact(v - 1)", "assert fact(5) == 120"),
    "mutually recursive functions": (
        "def even(v): return v == 0 or odd(v - 1)\ndef odd(v): return v != 0 and even(v - 1)",
        "assert even(10) and not odd(10)",
    ),
    "lambda": ("sq = lambda v: v * v", "assert sq(3) == 9"),
    "closure that goes on counting": (
        "def counter():\n  at = 0\n  def step():\n    nonlocal at; at += 1; return at\n  return step\n"
        "step = counter(); step(); step()",
        "assert step() == 3",
    ),
    "two closures over one cell": (
        "def pair():\n  at = 0\n  def up():\n    nonlocal at; at += 1\n  def read(): return at\n  return up, read\n"
        "up, read = pair()",
        "up(); up(); assert read() == 2",
    ),
    "partial, default and keyword-only": (
        "import functools; part = functools.partial(int, base=2)\ndef kw(a, b=[1], *, c=3): return a, b, c",
        "assert part('11') == 3; assert kw(0) == (0, [1], 3)",
    ),
    "decorated function": ("@functools.lru_cache\ndef cached(v): return v + 1\ncached(1)", "assert cached(1) == 2"),
    "class and instance": (
        "class Model:\n  count = 0\n  def __init__(self): self.w = [1]; Model.count += 1\n  def k(self): return K\n"
        "m1 = Model(); m2 = Model(); m2.w = m1.w",
        "assert isinstance(m1, Model) and m1.w is m2.w and m1.k() == K; before = Model.count; Model(); assert Model.count == before + 1",
    ),
    "inheritance and super": (
        "class Sub(Model):\n  def __init__(self): super().__init__(); self.s = 1\nsub = Sub()",
        "assert isinstance(sub, Model) and type(sub).__mro__[1] is Model; Sub()",
    ),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Point:\n  x: int = 0\n  ys: list = dataclasses.field(default_factory=list)\n"
        "point = Point(3)",
        "assert point == Point(3) and dataclasses.asdict(point) == {'x': 3, 'ys': []}",
    ),
    "enum": (
        "import enum\nclass Color(enum.Enum):\n  RED = 1\nred = Color.RED",
        "assert red is Color.RED and Color(1) is red",
    ),
    "abstract class": (
        "import abc\nclass Base(abc.ABC):\n  @abc.abstractmethod\n  def go(self): ...\n"
        "class Done(Base):\n  def go(self): return 1\ndone = Done()",
        "assert done.go() == 1 and isinstance(done, Base)",
    ),
    "slots and property": (
        "class S:\n  __slots__ = ('a',)\n  @property\n  def twice(self): return 2 * self.a\ns = S(); s.a = 4",
        "assert s.twice == 8",
    ),
    "bound method": ("bm = m1.k", "assert bm.__self__ is m1 and bm() == K"),
    "state setter that uses globals": (
        "class Late:\n  def __getstate__(self): return {'v': 1}\n"
        "  def __setstate__(self, state): self.v = helper(state['v'])\ndef helper(v): return m.floor(v + 1.5)\nlate = Late()",
        "assert late.v == 2",
    ),
    "exception": ("err = ValueError('x', 1)", "assert err.args == ('x', 1)"),
    "the namespace itself": ("own = globals(); holder = [globals()]", "assert own is globals() and holder[0] is own"),
    "regular expression": ("import re; rx = re.compile('a+')", "assert rx.match('aaa').group() == 'aaa'"),
    "logger": ("import logging; log = logging.getLogger('a.b')", "assert log.name == 'a.b'"),
    "text in memory": ("import io; sio = io.StringIO('ab'); sio.read(1)", "assert sio.read() == 'b'"),
    "iterator over a list": ("it = iter([1, 2, 3]); next(it)", "assert next(it) == 2"),
    "seeded random": (
        "import random; rnd = random.Random(4); rnd.random()",
        "same = random.Random(4); same.random(); assert rnd.random() == same.random()",
    ),
    "numpy array": ("import numpy as np; big = np.arange(100_000.)", "assert big[5] == 5; big[5] = 1"),
    "array of another order, and read-only": (
        "fo = np.asfortranarray(np.ones((300, 300))); ro = np.zeros(20_000); ro.flags.writeable = False",
        "assert fo.flags.f_contiguous and not ro.flags.writeable",
    ),
    "array with stride, and of objects": (
        "st = np.arange(50_000)[::-2]; ob = np.array([one, 'x'], dtype=object)",
        "assert st[0] == 49_999 and st[1] == 49_997 and ob[0] is one",
    ),
    "views of one array": (
        "view = big[10:20]; back = big[::-1]; nested = {'v': big[:3]}",
        "view[0] = -1; assert big[10] == -1 and back[-11] == -1; big[0] = 8; assert nested['v'][0] == 8",
    ),
    "views of dates and of nothing": (
        "days = np.arange('2026-01-01', '2026-03-01', dtype='M8[D]'); mondays = days[1::2]; none = np.zeros(0); no = none[:0]",
        "mondays[0] = days[0]; assert days[1] == days[0] and no.size == 0",
    ),
    "equal arrays stay two": ("za = np.zeros(50_000); zb = np.zeros(50_000)", "za[0] = 1; assert zb[0] == 0"),
    "array with a field": (
        "sa = np.zeros(3, dtype=[('a', 'i4'), ('b', 'f8')])",
        "assert sa.dtype.names == ('a', 'b'); sa['a'] = 1",
    ),
    "numpy generator": (
        "gen = np.random.default_rng(3); gen.random(); np.random.seed(5)",
        "assert gen.random() == np.random.default_rng(3).random(2)[1]; assert np.random.rand() == 0.22199317108973948",
    ),
    "underscore names of the user": ("_mine = 1; __also = 2", "assert _mine == 1 and __also == 2"),
}
if find_spec("sklearn"):
    KINDS["trained model"] = (
        "from sklearn.linear_model import LogisticRegression\n"
        "clf = LogisticRegression().fit([[0.], [1.], [2.], [3.]], [0, 0, 1, 1])",
        "assert list(clf.predict([[0.], [3.]])) == [0, 1]",
    )
if find_spec("pandas"):
    KINDS["data frame"] = (
        "import pandas as pd; df = pd.DataFrame({'a': np.arange(20_000.), 'b': ['x'] * 20_000}); col = df['a']",
        "assert df.a.sum() == 199_990_000 and col[3] == 3; df.loc[0, 'a'] = 5",
    )
# Last, because other cells may draw from it.
KINDS["global random"] = ("random.seed(7)", "assert random.random() == random.Random(7).random()")


@pytest.fixture(scope="module")
def moved(
    session: Callable[[str], dict[str, Any]],
    elsewhere: Callable[..., dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """All kinds in one session, saved once and restored in another process."""
    directory = tmp_path_factory.mktemp("kinds")
    namespace = session("\n".join(cell for cell, _ in KINDS.values()))
    saved = checkpoint.save(namespace, directory=str(directory), id="all", sequence=1, key=KEY, meta={"a": [1]})
    answer = elsewhere(directory, "all", {name: check for name, (_, check) in KINDS.items()})
    return {**answer, "saved": saved}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_survives_the_move(kind: str, moved: dict[str, Any]) -> None:
    assert moved["answers"][kind] == "ok"


def test_only_the_generator_is_lost_and_it_is_named(moved: dict[str, Any]) -> None:
    assert list(moved["lost"]) == ["stream"]
    assert moved["meta"] == {"a": [1]}
    assert not moved["warnings"]


# name: (cell that makes variable x, words that its reason must hold)
FAILING: dict[str, tuple[str, list[str]]] = {
    "generator": ("x = (i for i in range(3))", ["generator", "list"]),
    "lock": ("import threading; x = threading.Lock()", ["lock", "process"]),
    "re-entrant lock": ("import threading; x = threading.RLock()", ["lock"]),
    "event": ("import threading; x = threading.Event()", ["lock", "x._cond._lock"]),
    "thread": ("import threading; x = threading.Thread(target=print)", ["thread", "start it again"]),
    "socket": ("import socket; x = socket.socket()", ["socket", "connect again"]),
    "text file": ("x = open('/dev/null')", ["open file", "open it again"]),
    "binary file": ("x = open('/dev/null', 'rb')", ["open file", "open it again"]),
    "database": ("import sqlite3; x = sqlite3.connect(':memory:')", ["database connection", "connect again"]),
    "pool": ("from concurrent.futures import ThreadPoolExecutor; x = ThreadPoolExecutor(1)", ["pool of workers"]),
    "process": ("import subprocess; x = subprocess.Popen(['true']); x.wait()", ["running process"]),
    "coroutine": ("async def c(): ...\nx = c()", ["coroutine", "await"]),
    "weak reference": ("import weakref\nclass C: ...\nc = C(); x = weakref.ref(c)", ["weak reference"]),
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
    monkeypatch.setattr("gpufair.node.checkpoint.capture.EXTRA_BUDGET_BYTES", 50_000)
    frame = [b"x" * 60_000]
    extras = [("Out:3", frame), ("Out:2", _generator()), ("Out:1", b"y" * 40_000), ("Out:0", b"z" * 40_000)]
    result = checkpoint.save({"f": frame}, directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={}, extras=extras)
    assert result.lost == ()
    back: dict[str, Any] = {}
    restored = checkpoint.load(back, directory=str(tmp_path), id="c", key=KEY)
    assert set(restored.extras) == {"Out:3", "Out:1"}
    assert restored.extras["Out:3"] is back["f"]
    assert result.size_bytes < 160_000
