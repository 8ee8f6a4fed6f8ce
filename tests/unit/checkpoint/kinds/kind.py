"""What a row of the matrix is."""

from __future__ import annotations

# What is saved -> (cell that makes it, statements that must hold after the restore). In both, WORK is a folder to use.
Kinds = dict[str, tuple[str, str]]
