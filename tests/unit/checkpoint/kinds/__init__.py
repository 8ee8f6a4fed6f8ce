"""The matrix: which kinds of objects survive a move to another process. One module for each library."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from tests.unit.checkpoint.kinds.kind import Kinds

# Module -> its name in the documentation.
TITLES = {
    "python": "Python and the notebook",
    "numpy": "NumPy and SciPy",
    "frames": "Frames and tables",
    "learning": "scikit-learn and matplotlib",
    "torch": "PyTorch",
    "jax": "JAX",
    "cupy": "CuPy",
}


def kinds_of(group: str) -> Kinds:
    """The rows of one group."""
    kinds: Kinds = import_module(f"{__name__}.{group}").KINDS
    return kinds


def missing(group: str) -> list[str]:
    """The libraries that the group needs and that are not installed."""
    needs = getattr(import_module(f"{__name__}.{group}"), "NEEDS", ())
    return [name for name in needs if find_spec(name) is None]
