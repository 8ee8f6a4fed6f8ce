"""A report of simulated runs: one HTML file with pictures of who held which GPU when, charts and all figures."""

from gpufair.sim.report.writer import MOST_BYTES, NothingToReport, write_report

__all__ = ["MOST_BYTES", "NothingToReport", "write_report"]
