"""What a gate and a kernel tell each other of a cell that is to run again when a preemption cuts it (see ``again``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TAG = "gpufair-rerun"  # of a cell of the document; pages send a cell's tags with it
CUT = "cut"  # in the metadata of an output: the checkpoint from which its cell, which was cut, runs again
ASK = "gpufair_ask"  # a message of the kernel to the supervisor, which hears all that it says
AWAY = "away"  # in the place of a checkpoint: whichever has what the cell waits for (``kernel.away``)
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class Offer:
    """What a gate says with a cell: whether it would send it again, and if this is such a time, of what and how."""

    again: bool
    begins_with: str | None = None  # the checkpoint
    text: str = ""  # for the user


def tagged(metadata: Mapping[str, Any]) -> bool:
    """Whether the cell of such a request has the tag."""
    tags = metadata.get("tags")
    return isinstance(tags, list) and TAG in tags


def cut_from(metadata: Mapping[str, Any]) -> str | None:
    """The checkpoint from which the cell of such an output runs again; None for any other output."""
    told = metadata.get("gpufair")
    found = told.get(CUT) if isinstance(told, dict) else None
    return found if isinstance(found, str) else None


def offer_in(metadata: Mapping[str, Any]) -> Offer | None:
    """What the gate said with this request; None if there was none."""
    found = metadata.get("gpufair")
    if not isinstance(found, dict) or not isinstance(found.get("again"), bool):
        return None
    begins_with = found.get("from")
    return Offer(
        found["again"], begins_with if isinstance(begins_with, str) else None, str(found.get("text", ""))[:MAX_TEXT]
    )
