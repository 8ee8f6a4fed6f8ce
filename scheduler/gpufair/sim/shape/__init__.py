"""Traces as scenarios."""

from gpufair.sim.shape.shape import shape

__all__ = ["shape"]
