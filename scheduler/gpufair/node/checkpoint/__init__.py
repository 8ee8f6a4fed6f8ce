"""Checkpoints of a Python session: save the variables of a namespace, restore them in another process.

A checkpoint is a folder: ``manifest.json`` (signed, written last), ``objects.pkl`` (one pickle per variable with one
shared memo) and ``buffers/SHA256`` (large buffers, raw). Needs cloudpickle; fsspec only for directories that are URLs.

Preserved: identities between variables, recursive structures, functions bound to the live namespace, classes defined in
the notebook, arrays that share memory with a variable. Not preserved: contents of other threads' work in progress
(call ``save`` where no cell runs), and whatever ``SaveResult.lost`` names.
"""

from __future__ import annotations

from gpufair.node.checkpoint.capture import SaveResult, save
from gpufair.node.checkpoint.catalogue import CheckpointInfo, latest, listing, prune, verify
from gpufair.node.checkpoint.errors import CheckpointFailed, CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.restore import RestoreResult, load

__all__ = [
    "CheckpointFailed",
    "CheckpointInfo",
    "CheckpointMissing",
    "CheckpointRejected",
    "RestoreResult",
    "SaveResult",
    "latest",
    "listing",
    "load",
    "prune",
    "save",
    "verify",
]
