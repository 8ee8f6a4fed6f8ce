"""Python's own objects, and those of the notebook."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

KINDS: Kinds = {
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
    "underscore names of the user": ("_mine = 1; __also = 2", "assert _mine == 1 and __also == 2"),
    "alias of an import": (
        "import os.path as osp; import json as js; from collections.abc import Mapping as Map",
        "import os.path, json, collections.abc; assert osp is os.path and js is json and Map is collections.abc.Mapping",
    ),
    "module made by hand": (
        "import types; made = types.ModuleType('made'); made.x = one",
        "assert made.x is one and made.__name__ == 'made'",
    ),
    "class redefined in a later cell": (
        "class Twice:\n  version = 1\nold_one = Twice()\nclass Twice:\n  version = 2\nnew_one = Twice()",
        "assert (old_one.version, new_one.version) == (1, 2) and type(new_one) is Twice and type(old_one) is not Twice",
    ),
    "frozen dataclass with slots": (
        "@dataclasses.dataclass(frozen=True, slots=True)\nclass Fixed:\n  a: int\n  b: tuple = ()\nfixed = Fixed(1, (one,))",
        "assert fixed == Fixed(1, (one,)) and fixed.b[0] is one and hash(Fixed(2))",
    ),
    "flag and enum of integers": (
        "class Perm(enum.Flag):\n  R = 1\n  W = 2\nclass Level(enum.IntEnum):\n  LOW = 1\nperm = Perm.R | Perm.W; low = Level.LOW",
        "assert perm == Perm.R | Perm.W and Perm.R in perm and low is Level.LOW and low == 1",
    ),
    "singletons": (
        "nothing, dots, refusal = None, ..., NotImplemented; missing = object(); uses = {'m': missing, 'd': dots}",
        "assert nothing is None and dots is ... and refusal is NotImplemented and uses['m'] is missing",
    ),
    "singleton class": (
        "class Single:\n  _one = None\n  def __new__(cls):\n    if cls._one is None: cls._one = super().__new__(cls)\n"
        "    return cls._one\nsingle = Single()",
        "assert Single() is single and Single._one is single",
    ),
    "generic, typed and protocol classes": (
        "from typing import Generic, TypeVar, Protocol, TypedDict, NamedTuple\nTT = TypeVar('TT')\n"
        "class Box(Generic[TT]):\n  def __init__(self, v): self.v = v\nclass Row(TypedDict):\n  a: int\n"
        "class Pair(NamedTuple):\n  a: int\n  b: int = 2\nbox = Box[int](1); row = Row(a=1); pair2 = Pair(1)",
        "assert Box[str]('x').v == 'x' and box.v == 1 and row['a'] == 1 and pair2 == Pair(1, 2)",
    ),
    "class with a metaclass and a registry": (
        "class Meta(type):\n  known = []\n  def __new__(m, n, b, d):\n    c = super().__new__(m, n, b, d); m.known.append(c); return c\n"
        "class Reg(metaclass=Meta): pass\nreg = Reg()",
        "assert type(Reg) is Meta and type(reg) is Reg and Reg in Meta.known",
    ),
    "class and static methods, cached property": (
        "class Ways:\n  made = 0\n  @classmethod\n  def make(cls): cls.made += 1; return cls()\n  @staticmethod\n  def two(): return 2\n"
        "  @functools.cached_property\n  def slow(self): return [1]\nways = Ways.make(); ways.slow",
        "assert Ways.made == 1 and ways.two() == 2 and ways.slow is ways.slow and Ways.make() and Ways.made == 2",
    ),
    "descriptor of the user": (
        "class Positive:\n  def __set_name__(self, o, n): self.n = '_' + n\n  def __get__(self, o, t=None): return getattr(o, self.n)\n"
        "  def __set__(self, o, v):\n    if v < 0: raise ValueError(v)\n    setattr(o, self.n, v)\n"
        "class Acc:\n  amount = Positive()\nacc = Acc(); acc.amount = 5",
        "assert acc.amount == 5\ntry: acc.amount = -1; raise AssertionError\nexcept ValueError: pass",
    ),
    "exception class, with cause": (
        "class Oops(Exception):\n  def __init__(self, code): super().__init__(code); self.code = code\n"
        "try:\n  try: raise KeyError('k')\n  except KeyError as e_: raise Oops(7) from None\nexcept Oops as e_: oops = e_.with_traceback(None)",
        "assert oops.code == 7 and isinstance(oops, Oops)",
    ),
    "subclasses of list, dict and str": (
        "class L2(list): tag = 1\nclass D2(dict):\n  def __missing__(self, k): return k\nclass S2(str): pass\n"
        "l2 = L2([one]); l2.note = 'n'; d2 = D2(a=1); s2 = S2('s')",
        "assert l2[0] is one and l2.note == 'n' and d2['zz'] == 'zz' and isinstance(s2, S2) and s2 == 's'",
    ),
    "object that knows its parent": (
        "class Node:\n  def __init__(self, parent=None): self.parent = parent; self.children = []; parent and parent.children.append(self)\n"
        "  __hash__ = object.__hash__\ntree = Node(); leaf = Node(tree); seen_nodes = {tree, leaf}",
        "assert leaf.parent is tree and tree.children[0] is leaf and leaf in seen_nodes",
    ),
    "weak reference, live and dead": (
        "import weakref\nclass W: pass\nkept = W(); wr = weakref.ref(kept); gone = weakref.ref(W()); px = weakref.proxy(kept); kept.v = 5",
        "assert wr() is kept and gone() is None and px.v == 5; del kept; import gc; gc.collect(); assert wr() is None",
    ),
    "weak method": (
        "class WM:\n  def hi(self): return 'hi'\nwm_owner = WM(); wm = weakref.WeakMethod(wm_owner.hi)",
        "assert wm()() == 'hi' and wm().__self__ is wm_owner",
    ),
    "weak dictionaries and sets": (
        "k1, k2 = W(), W()\nwvd = weakref.WeakValueDictionary(a=k1); wkd = weakref.WeakKeyDictionary({k1: one}); ws = weakref.WeakSet([k1, k2])",
        "assert wvd['a'] is k1 and wkd[k1] is one and k2 in ws and len(ws) == 2; del k2; gc.collect(); assert len(ws) == 1",
    ),
    "weak value that nothing else holds": (
        "wvd2 = weakref.WeakValueDictionary(); wvd2['kept'] = k1; _only = [W()]; wvd2['t'] = _only[0]; _only = None",
        "assert list(wvd2) == ['kept']",
    ),
    "class that holds objects of its own": (
        "class Vec(NamedTuple):\n  x: int\n  y: int\nVec.ZERO = Vec(0, 0)\n"
        "@dataclasses.dataclass(frozen=True, slots=True)\nclass Unit:\n  name: str\nUnit.M = Unit('m'); metre = Unit.M",
        "assert Vec.ZERO == (0, 0) and type(Vec.ZERO) is Vec and Unit.M is metre and metre.name == 'm'",
    ),
    "views of a dict": (
        "origin = {'a': 1}; ks, vs, its = origin.keys(), origin.values(), origin.items(); ro_map = types.MappingProxyType(origin)",
        "origin['b'] = 2; assert list(ks) == ['a', 'b'] and list(vs) == [1, 2] and len(its) == 2 and ro_map['b'] == 2",
    ),
    "views of an ordered dict, chain map": (
        "od = collections.OrderedDict(a=1); odk = od.keys(); cm = collections.ChainMap({}, od)",
        "od['z'] = 1; assert list(odk) == ['a', 'z']; assert cm['z'] == 1 and cm.maps[1] is od",
    ),
    "iterators": (
        "import itertools; its2 = [enumerate('ab', 1), zip('ab', 'cd'), map(str, [1, 2]), reversed([1, 2]), itertools.count(5)]\n"
        "for i_ in its2: next(i_)",
        "assert [next(i_) for i_ in its2] == [(2, 'b'), ('b', 'd'), '2', 1, 6]",
    ),
    "array, struct, heap": (
        "import array, struct, heapq; arr_ = array.array('d', [1, 2]); st_ = struct.Struct('<i'); heap = [3, 1]; heapq.heapify(heap)",
        "assert arr_[1] == 2 and st_.unpack(st_.pack(4)) == (4,) and heap[0] == 1",
    ),
    "operator getters": (
        "import operator; ig, ag, mc = operator.itemgetter(1), operator.attrgetter('real'), operator.methodcaller('upper')",
        "assert ig([0, 7]) == 7 and ag(3) == 3 and mc('a') == 'A'",
    ),
    "time zones and intervals": (
        "import zoneinfo; tz = datetime.timezone(datetime.timedelta(hours=2)); zi = zoneinfo.ZoneInfo('UTC'); at_ = datetime.datetime(2026, 1, 1, tzinfo=tz)",
        "assert at_.utcoffset().seconds == 7200 and zi.key == 'UTC'",
    ),
    "slice, range, complex and special floats": (
        "sl, rg, cx, sp = slice(1, None, 2), range(3, 9, 2), 1 + 2j, [float('inf'), -0.0]",
        "import math as mm; assert sl == slice(1, None, 2) and list(rg) == [3, 5, 7] and cx.imag == 2 and mm.copysign(1, sp[1]) == -1",
    ),
    "simple namespace": ("sn = types.SimpleNamespace(a=one)", "assert sn.a is one"),
    "decorated function that counts": (
        "def counted(f):\n  @functools.wraps(f)\n  def w(*a): w.calls += 1; return f(*a)\n  w.calls = 0; return w\n"
        "@counted\ndef add(a, b): return a + b\nadd(1, 2)",
        "assert add(2, 3) == 5 and add.calls == 2 and add.__name__ == 'add' and add.__wrapped__.__globals__ is globals()",
    ),
    "function with attributes, defaults and annotations": (
        "def fancy(a: int, *rest: str, k: 'Model' = None) -> float: 'doc'; return a\nfancy.memo = one",
        "assert fancy.memo is one and fancy.__doc__ == 'doc' and fancy.__annotations__['a'] is int",
    ),
    "single dispatch": (
        "@functools.singledispatch\ndef show(x): return 'any'\n@show.register\ndef _(x: int): return 'int'",
        "assert show(1) == 'int' and show('a') == 'any'",
    ),
    "generator, async and coroutine functions": (
        "def gen_f():\n  yield K\nasync def co_f(): return K\nasync def ag_f():\n  yield K",
        "import asyncio; assert next(gen_f()) == K and asyncio.run(co_f()) == K",
    ),
    "large text and bytes": (
        "big_text = 'añ€😀' * 100_000; big_bytes = bytes(range(256)) * 2000; same_bytes = big_bytes; in_list = [big_text, big_bytes]",
        "assert big_text == 'añ€😀' * 100_000 and same_bytes is big_bytes and in_list[0] is big_text and in_list[1] is big_bytes",
    ),
    "closed file": (
        "import tempfile\nwith open(WORK + '/closed.txt', 'w') as cf: cf.write('x')",
        "assert cf.closed and cf.name.endswith('closed.txt')",
    ),
    "file that is being read": (
        "with open(WORK + '/lines.txt', 'w') as f_: f_.write('one\\ntwo\\nthree\\n')\nrf = open(WORK + '/lines.txt'); rf.readline()",
        "assert rf.readline() == 'two\\n' and rf.mode == 'r'",
    ),
    "file that is being written, appended to, updated": (
        "wf = open(WORK + '/w.txt', 'w'); wf.write('abc')\naf = open(WORK + '/a.bin', 'ab'); af.write(b'1')\n"
        "uf = open(WORK + '/lines.txt', 'r+b'); uf.seek(4)\nraw_ = open(WORK + '/lines.txt', 'rb', buffering=0); raw_.read(2)",
        "wf.write('d'); wf.close(); assert open(WORK + '/w.txt').read() == 'abcd'; af.write(b'2'); af.close(); "
        "assert open(WORK + '/a.bin', 'rb').read() == b'12'; assert uf.read(3) == b'two' and raw_.read(2) == b'e\\n'",
    ),
    "the standard streams": ("import sys; out = sys.stdout", "import sys; assert out is sys.stdout"),
    "codec of the user": (
        "import gpufair, threading\nclass Conn:\n  def __init__(self, url): self.url = url; self.lock = threading.Lock()\n"
        "@gpufair.codec(Conn)\ndef again(c): return Conn, (c.url,)\nconn = Conn('db://x'); pool = {'main': conn}",
        "assert conn.url == 'db://x' and pool['main'] is conn and conn.lock.acquire(False)",
    ),
}
