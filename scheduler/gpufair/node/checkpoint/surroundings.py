"""What a session has beside its variables, read once: for a checkpoint, and for whether it is still what the last one saw."""

from __future__ import annotations

import hashlib
import pickle
import sys
from dataclasses import dataclass

from gpufair.node.checkpoint import environment, process, settings
from gpufair.node.checkpoint.codecs import torch


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All but the generators as a manifest keeps it. Two are compared to find what no variable tells.

    Attributes:
        generators: A digest of the states of the random number generators, which are extras of a checkpoint: a cell that
            only seeds one assigns nothing, and what follows it depends on it all the same.
        environment: See ``environment.changed``, with ``withheld``.
    """

    generators: str
    cwd: str
    sys_path: tuple[str, ...]
    environment: dict[str, str | None]
    withheld: tuple[str, ...]
    settings: settings.Settings


def current() -> Surroundings:
    """Those of this process."""
    states = {
        device: [state.numpy().tobytes() for state in found] for device, found in (torch.generator_states() or {}).items()
    }
    generators = hashlib.sha256(pickle.dumps((process.python_generators(), states))).hexdigest()
    path = tuple(str(entry) for entry in sys.path)
    return Surroundings(generators, process.working_directory(), path, *environment.changed(), settings.current())
