"""The decisions: events in, actions out. Standard library only; no clock, no I/O, no randomness."""
