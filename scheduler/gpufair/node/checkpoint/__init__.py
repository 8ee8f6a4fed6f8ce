"""Checkpoints of a Python session: save the variables of a namespace, restore them in another process.

``DIRECTORY/CHECKPOINT/manifest.json`` (signed, written last) says what a checkpoint consists of; the bytes lie in
``DIRECTORY/buffers/``, by content, and are shared by all checkpoints of the directory: the stream (one pickle per
variable with one shared memo) and the large buffers, in pieces of at most 8 MiB. Needs cloudpickle; fsspec only for
directories that are URLs; cryptography and zstandard where they are to be used.

Preserved: identities between variables, recursive structures, functions bound to the live namespace, classes defined in
the notebook, arrays that share memory with a variable. Not preserved: contents of other threads' work in progress
(``SaveResult.torn`` says so), and whatever ``SaveResult.lost`` names.
"""

from __future__ import annotations

from gpufair.node.checkpoint.capture import SaveResult, changes, save
from gpufair.node.checkpoint.catalogue import CheckpointInfo, latest, listing, prune, sweep, verify
from gpufair.node.checkpoint.errors import CheckpointFailed, CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.options import BadOptions, StoreOptions
from gpufair.node.checkpoint.restore import RestoreResult, load
from gpufair.node.checkpoint.tracker import Changes, Tracker

__all__ = [
    "BadOptions",
    "Changes",
    "CheckpointFailed",
    "CheckpointInfo",
    "CheckpointMissing",
    "CheckpointRejected",
    "RestoreResult",
    "SaveResult",
    "StoreOptions",
    "Tracker",
    "changes",
    "latest",
    "listing",
    "load",
    "prune",
    "save",
    "sweep",
    "verify",
]
