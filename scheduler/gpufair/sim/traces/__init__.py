"""Traces: files of jobs of the past, of several formats, as rows with the lines that they come from."""

from gpufair.sim.traces.csv_reader import write_csv
from gpufair.sim.traces.errors import BadRows, TraceError, TraceTooLarge
from gpufair.sim.traces.options import Options
from gpufair.sim.traces.reader import FORMATS, UnknownFormat, read_trace
from gpufair.sim.traces.row import BadRow, Row, Trace

__all__ = [
    "FORMATS",
    "BadRow",
    "BadRows",
    "Options",
    "Row",
    "Trace",
    "TraceError",
    "TraceTooLarge",
    "UnknownFormat",
    "read_trace",
    "write_csv",
]
