"""Jupyter messages on the wire, as much of the protocol as a supervisor needs.

Written out here because importing ``jupyter_client`` takes longer than the start of the kernel may cost.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

DELIMITER = b"<IDS|MSG>"


class Signer:
    """Signs and checks messages with a kernel's session key."""

    def __init__(self, key: str) -> None:
        self._base = hmac.new(key.encode(), digestmod=hashlib.sha256)

    def sign(self, frames: Sequence[bytes]) -> bytes:
        """Signature of the four JSON frames."""
        mac = self._base.copy()
        for frame in frames:
            mac.update(frame)
        return mac.hexdigest().encode()

    def split(self, frames: Sequence[bytes]) -> list[bytes] | None:
        """Header, parent header, metadata, content, then buffers; None if it isn't a message signed with our key."""
        try:
            at = frames.index(DELIMITER)
        except ValueError:
            return None
        body = list(frames[at + 2 :])
        if len(body) < 4 or not hmac.compare_digest(frames[at + 1], self.sign(body[:4])):
            return None
        return body


def request(signer: Signer, session: str, kind: str, content: dict[str, Any]) -> tuple[str, list[bytes]]:
    """A new request: its id and its frames."""
    message_id = uuid.uuid4().hex
    header = {
        "msg_id": message_id,
        "msg_type": kind,
        "session": session,
        "username": "gpufair",
        "date": datetime.now(UTC).isoformat(),
        "version": "5.3",
    }
    body = [json.dumps(part).encode() for part in (header, {}, {}, content)]
    return message_id, [DELIMITER, signer.sign(body), *body]
