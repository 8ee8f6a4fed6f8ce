"""The policy time machine: submissions played through the very core that runs live, and through policies to compare with.

A scenario is made of a trace (``read_trace``, ``shape``) or constructed (``worlds``); ``simulate`` plays it under one
policy, ``compare`` under several, ``sweep`` at many settings, ``write_report`` shows what happened. ``whatif`` plays a
live state forward. See ``docs/simulator.md``.
"""

from gpufair.sim import worlds
from gpufair.sim.assumptions import Assumptions, read_assumptions
from gpufair.sim.cluster import Cluster
from gpufair.sim.engine import play
from gpufair.sim.measures import Figures, as_json, measure
from gpufair.sim.policies.registry import CONTENDERS
from gpufair.sim.report import write_report
from gpufair.sim.runs import Result, compare, sampling, simulate
from gpufair.sim.scenario import Scenario
from gpufair.sim.shape import shape
from gpufair.sim.story import Story
from gpufair.sim.sweeping import Run, sweep
from gpufair.sim.traces import read_trace, write_csv
from gpufair.sim.whatif import Change, look_back, whatif, with_shares
from gpufair.sim.worlds import Setting

__all__ = [
    "CONTENDERS",
    "Assumptions",
    "Change",
    "Cluster",
    "Figures",
    "Result",
    "Run",
    "Scenario",
    "Setting",
    "Story",
    "as_json",
    "compare",
    "look_back",
    "measure",
    "play",
    "read_assumptions",
    "read_trace",
    "sampling",
    "shape",
    "simulate",
    "sweep",
    "whatif",
    "with_shares",
    "worlds",
    "write_csv",
    "write_report",
]
