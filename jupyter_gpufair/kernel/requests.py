"""What our control messages carry, checked."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufair.core.errors import GpufairError

MAX_WAIT_S = 86_400.0
_MAX_KEY_FILE_BYTES = 4096
_MAX_TEXT = 4096
MAX_VERDICTS = 500  # of a reply


class BadRequest(GpufairError):
    """A control message cannot be carried out as it is."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """``gpufair_checkpoint_request``.

    ``wait_s`` is how long to wait for the end of a running cell, ``hold_s`` for how long after a success no cell may
    begin: who checkpoints in order to stop the kernel does not want the next queued cell to run half. With ``within_s``
    it is only worth while if something has changed and if it takes no longer than that; 0: always. ``store`` are the
    store's rules.
    """

    directory: str
    id: str
    sequence: int
    key_file: str
    wait_s: float
    hold_s: float
    within_s: float = 0.0
    store: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """``gpufair_restore_request``."""

    directory: str
    id: str
    key_file: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """``gpufair_preflight_request``. ``within_s`` bounds the look itself."""

    within_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class NoticeRequest:
    """``gpufair_notice_request``; an empty text withdraws the notice, and a hold with it."""

    text: str
    deadline_s: float


def checkpoint_request(content: dict[str, Any]) -> CheckpointRequest:
    """The request in a message's content. Raises: BadRequest: names the field that is wrong."""
    sequence = content.get("sequence")
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        raise BadRequest(f"sequence must be a whole number from 0 on, not {sequence!r}")
    return CheckpointRequest(
        _text(content, "directory"),
        _text(content, "id"),
        sequence,
        _text(content, "key_file"),
        _seconds(content, "wait_s"),
        _seconds(content, "hold_s"),
        _seconds(content, "within_s"),
        _table(content, "store"),
    )


def restore_request(content: dict[str, Any]) -> RestoreRequest:
    """The request in a message's content. Raises: BadRequest: names the field that is wrong."""
    return RestoreRequest(
        _text(content, "directory"), _text(content, "id"), _text(content, "key_file"), _seconds(content, "wait_s")
    )


def preflight_request(content: dict[str, Any]) -> PreflightRequest:
    """The request in a message's content. Raises: BadRequest: names the field that is wrong."""
    return PreflightRequest(_seconds({"within_s": 2.0, **content}, "within_s"), _seconds(content, "wait_s"))


def notice_request(content: dict[str, Any]) -> NoticeRequest:
    """The request in a message's content. Raises: BadRequest: names the field that is wrong."""
    text = content.get("text", "")
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise BadRequest(f"text must be a string of at most {_MAX_TEXT} characters")
    deadline_s = content.get("deadline_s") or 0
    if not isinstance(deadline_s, int | float) or not math.isfinite(deadline_s):
        raise BadRequest(f"deadline_s must be Unix seconds, not {deadline_s!r}")
    return NoticeRequest(text, float(deadline_s))


def read_key(path: str) -> bytes:
    """The key in an owner-only file, in hex. Read for each request, so that it is not kept in the user's process.

    Raises:
        BadRequest: Not there, not a plain file of ours, open to others, or not hex.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as err:
        raise BadRequest(f"the key file {path} cannot be opened ({err.strerror})") from err
    with os.fdopen(file, "rb") as opened:
        facts = os.fstat(opened.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise BadRequest(f"the key file {path} must be a plain file that only its owner may read; chmod 600 it")
        text = opened.read(_MAX_KEY_FILE_BYTES)
    try:
        return bytes.fromhex(text.decode("ascii").strip())
    except ValueError as err:  # the content stays out of the message: it may be most of a key
        raise BadRequest(f"the key file {path} does not hold a key in hex") from err


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT:
        raise BadRequest(f"{name} must be a string of 1 to {_MAX_TEXT} characters")
    return value


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name) or {}
    if not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object, not {value!r}")
    return value


def _seconds(content: dict[str, Any], name: str) -> float:
    value = content.get(name, 0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_WAIT_S:
        raise BadRequest(f"{name} must be seconds from 0 to {MAX_WAIT_S:.0f}, not {value!r}")
    return float(value)
