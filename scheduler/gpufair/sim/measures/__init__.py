"""The figures of a run, the same for every policy: what was delivered of what was owed, waits, and what it cost."""

from gpufair.sim.measures.figures import (
    Account,
    Counts,
    Deliveries,
    Figures,
    GpuTime,
    Landings,
    Quantiles,
    Run,
    Waits,
)
from gpufair.sim.measures.measure import measure
from gpufair.sim.measures.period import NothingToMeasure, Period
from gpufair.sim.measures.table import Row, compare
from gpufair.sim.measures.written import as_json

__all__ = [
    "Account",
    "Counts",
    "Deliveries",
    "Figures",
    "GpuTime",
    "Landings",
    "NothingToMeasure",
    "Period",
    "Quantiles",
    "Row",
    "Run",
    "Waits",
    "as_json",
    "compare",
    "measure",
]
