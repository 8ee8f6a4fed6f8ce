"""Whether what a session has beside its variables is still what its last checkpoint saw."""

from __future__ import annotations

import hashlib
import pickle
import sys

from gpufair.node.checkpoint import environment, process, settings
from gpufair.node.checkpoint.codecs import torch


def fingerprint() -> str:
    """Of the random number generators, working directory, import path, environment and library settings.

    A cell that only seeds a generator assigns nothing, and what follows it depends on it all the same.
    """
    states = {
        device: [state.numpy().tobytes() for state in found] for device, found in (torch.generator_states() or {}).items()
    }
    seen = (
        process.python_generators(),
        states,
        process.working_directory(),
        [str(entry) for entry in sys.path],
        environment.changed(),
        settings.current(),
    )
    return hashlib.sha256(pickle.dumps(seen)).hexdigest()
