"""NumPy and SciPy."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy", "scipy")
KINDS: Kinds = {
    "numpy array": ("import numpy as np; big = np.arange(100_000.)", "assert big[5] == 5; big[5] = 1"),
    "array of another order, and read-only": (
        "fo = np.asfortranarray(np.ones((300, 300))); ro = np.zeros(20_000); ro.flags.writeable = False",
        "assert fo.flags.f_contiguous and not ro.flags.writeable",
    ),
    "array with stride, and of objects": (
        "one = [1]; st = np.arange(50_000)[::-2]; ob = np.array([one, 'x'], dtype=object)",
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
    "views inside other objects": (
        "flat = np.arange(30_000.)\nclass Net:\n  def __init__(self, v): self.w, self.b, self.all = v[:20_000], v[20_000:], v\n"
        "net = Net(flat); del flat",
        "net.w[0] = -7; net.b[0] = -8; assert net.all[0] == -7 and net.all[20_000] == -8",
    ),
    "two small views of a large array": (
        "huge = np.zeros(2_000_000); cuts = [huge[5:10], huge[1000:1010]]; del huge",
        "assert cuts[0].shape == (5,) and cuts[1].shape == (10,)",
    ),
    "matrix, masked and record array": (
        "mx = np.matrix([[1, 2], [3, 4]]); ma = np.ma.array([1, 2, 3], mask=[0, 1, 0]); rec = np.rec.array([(1, 2.)], dtype=[('a', 'i4'), ('b', 'f8')]); mk = np.ma.masked",
        "assert (mx * mx)[0, 0] == 7 and ma.sum() == 4 and rec.a[0] == 1 and mk is np.ma.masked",
    ),
    "array of text": (
        "tx = np.array(['a', 'bcd']); sd = np.array(['x', 'yy'], dtype=np.dtypes.StringDType())",
        "assert tx[1] == 'bcd' and sd[1] == 'yy'",
    ),
    "scalar, dtype and function": (
        "sc = np.float32(1.5); dt = np.dtype('M8[ns]'); uf_ = np.add",
        "assert sc == 1.5 and type(sc) is np.float32 and dt == 'M8[ns]' and uf_ is np.add",
    ),
    "subclass of an array": (
        "class Units(np.ndarray):\n  def __array_finalize__(self, o): self.unit = getattr(o, 'unit', None)\n"
        "  def __reduce__(self): r = super().__reduce__(); return r[0], r[1], (r[2], self.unit)\n"
        "  def __setstate__(self, s): super().__setstate__(s[0]); self.unit = s[1]\nun = np.arange(3.).view(Units); un.unit = 'm'",
        "assert un.unit == 'm' and isinstance(un, Units) and un.sum() == 3",
    ),
    "array mapped from a file": (
        "mm = np.memmap(WORK + '/m.bin', dtype='f4', mode='w+', shape=(100,)); mm[:] = 2; mcut = mm[10:20]; mplain = np.asarray(mm)[:5]",
        "assert type(mm) is np.memmap and mm.sum() == 200; mcut[0] = 9; assert mm[10] == 9 and type(mcut) is np.memmap; mplain[0] = 4; assert mm[0] == 4",
    ),
    "sparse matrix": (
        "import scipy.sparse as ss; sm = ss.random(200, 200, 0.1, format='csr', random_state=1); total = sm.sum()",
        "assert sm.format == 'csr' and sm.sum() == total",
    ),
}
