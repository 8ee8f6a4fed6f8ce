"""How checkpoints are kept: compressed or not, encrypted or not, how many, how large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpufair.core.errors import GpufairError

Compression = Literal["auto", "never"]


class BadOptions(GpufairError):
    """Options of the checkpoint store that make no sense; the text names the field."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """One store's rules.

    Attributes:
        compression: ``auto`` compresses what a sample says is written sooner that way.
        encryption: AES-256-GCM with a key that is derived from the user's; needs the package cryptography.
        session_bytes: What all checkpoints of one session may take together; 0: no limit.
        user_bytes: What the checkpoints of one user's sessions may take together; 0: no limit.
        keep: How many valid checkpoints of a session stay.
        keep_s: Older ones go as well, but never the newest valid one; 0: no limit.
    """

    compression: Compression = "auto"
    encryption: bool = False
    session_bytes: int = 0
    user_bytes: int = 0
    keep: int = 2
    keep_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises: BadOptions."""
        facts: dict[str, Any] = asdict(self)  # types are not believed: this comes from a message or a file
        if facts["compression"] not in ("auto", "never"):
            raise BadOptions(f"compression must be auto or never, not {self.compression!r}")
        if not isinstance(facts["encryption"], bool):
            raise BadOptions(f"encryption must be true or false, not {self.encryption!r}")
        for name, least in (("session_bytes", 0), ("user_bytes", 0), ("keep", 1)):
            if not isinstance(facts[name], int) or isinstance(facts[name], bool) or facts[name] < least:
                raise BadOptions(f"{name} must be a whole number from {least} on, not {facts[name]!r}")
        seconds = facts["keep_s"]
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0:
            raise BadOptions(f"keep_s must be seconds from 0 on, not {seconds!r}")

    def as_dict(self) -> dict[str, Any]:
        """As JSON, for a message."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> StoreOptions:
        """What ``as_dict`` gave; what is missing has its default. Raises: BadOptions."""
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise BadOptions(f"unknown options of the checkpoint store: {', '.join(map(str, unknown))}")
        return cls(**given)
