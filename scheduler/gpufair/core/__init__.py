"""The decisions: events in, actions out. Standard library only; no clock, no I/O, no randomness."""

COMPILED = False  # True in the package that scheduler/compile_core.py makes
