"""Data frames and tables."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy", "pandas", "polars", "pyarrow")
KINDS: Kinds = {
    "pandas frame and column": (
        "import numpy as np, pandas as pd; df = pd.DataFrame({'a': np.arange(20_000.), 'b': ['x'] * 20_000}); col = df['a']",
        "assert df.a.sum() == 199_990_000 and col[3] == 3; df.loc[0, 'a'] = 5; assert col[0] == 0; col[1] = 7; assert df.a[1] == 1",
    ),
    "pandas frames that share lazily": (
        "d1 = pd.DataFrame(np.ones((20_000, 3))); d2 = d1.copy(deep=False); arr = d1.to_numpy(); part = d1.iloc[:, 1:]; same = d1",
        "assert same is d1; d2.iloc[0, 0] = 9; assert d1.iloc[0, 0] == 1 and part.iloc[0, 0] == 1; d1.iloc[0, 1] = 8; assert part.iloc[0, 0] == 1",
    ),
    "pandas index shared with a column": (
        "s0 = pd.Series(np.arange(10_000)); idx = pd.Index(s0); keyed = pd.Series(1, index=idx)",
        "s0[0] = 99; assert idx[0] == 0 and keyed.index[0] == 0",
    ),
    "pandas time series, categories, missing values": (
        "ts = pd.Series(range(48), index=pd.date_range('2026', periods=48, freq='h', tz='UTC')); cat = pd.Categorical(['a', 'b', 'a'])\n"
        "miss = pd.array([1, None], dtype='Int64'); na = pd.NA; nat = pd.NaT",
        "assert ts.resample('D').sum().iloc[0] == 276 and cat.codes.tolist() == [0, 1, 0] and miss[1] is pd.NA and na is pd.NA and nat is pd.NaT",
    ),
    "pandas levels, groups and strings": (
        "mi = pd.DataFrame({'k': ['x', 'y', 'x'], 'n': [1, 2, 3]}).set_index(['k', 'n'], drop=False); mi.index.names = ['K', 'N']; grp = df.groupby('b')",
        "assert mi.loc[('x', 3)].n == 3 and grp.ngroups == 1",
    ),
    "polars frame, series and lazy frame": (
        "import polars as pl; pf = pl.DataFrame({'a': range(50_000), 's': ['t'] * 50_000}); ps = pf['a']; lf = pf.lazy().filter(pl.col('a') > 3); ex = pl.col('a') + 1",
        "assert pf['a'].sum() == 1_249_975_000 and ps[3] == 3 and lf.collect().height == 49_996 and pf.select(ex)['a'][0] == 1",
    ),
    "arrow table, array and schema": (
        "import pyarrow as pa; tb = pa.table({'a': range(50_000), 's': ['t'] * 50_000}); pc_ = tb['a']; sch = tb.schema",
        "assert tb.num_rows == 50_000 and pc_[5].as_py() == 5 and tb.schema == sch",
    ),
    "pandas on arrow": (
        "ar = pd.Series(['u', None, 'v'], dtype='string[pyarrow]'); ad = df.convert_dtypes(dtype_backend='pyarrow')",
        "assert ar.isna().sum() == 1 and ad.a.sum() == 199_990_000",
    ),
}
