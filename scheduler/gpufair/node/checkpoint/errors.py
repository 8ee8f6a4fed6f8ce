"""What can go wrong with a checkpoint as a whole. Single variables never raise: they are listed as lost."""

from __future__ import annotations

from gpufair.core.errors import GpufairError


class CheckpointFailed(GpufairError):
    """A checkpoint was not written. Nothing of it is left, earlier ones are untouched."""

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(checkpoint, reason)
        self.checkpoint, self.reason = checkpoint, reason

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint!r} was not written: {self.reason}; earlier checkpoints are untouched"


class CheckpointRejected(GpufairError):
    """A checkpoint exists but must not be loaded. Nothing of it has been unpickled, no variable was changed."""

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(checkpoint, reason)
        self.checkpoint, self.reason = checkpoint, reason

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint!r} was not loaded: {self.reason}"


class CheckpointMissing(GpufairError):
    """There is no finished checkpoint of this name."""

    def __init__(self, checkpoint: str, directory: str) -> None:
        super().__init__(checkpoint, directory)
        self.checkpoint, self.directory = checkpoint, directory

    def __str__(self) -> str:
        return f"there is no finished checkpoint {self.checkpoint!r} in {self.directory}"
