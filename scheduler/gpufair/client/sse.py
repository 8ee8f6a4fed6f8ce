"""Server-sent events: bytes in, messages out, whatever the chunks (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from gpufair.client.errors import ClientError

# A workload is about 2 kB; 4 MiB leaves room for thousands of lost variables and bounds a server gone wrong.
MAX_MESSAGE_CHARS = 4 << 20


class StreamTooLarge(ClientError):
    """One message exceeds what a client is willing to hold."""

    def __str__(self) -> str:
        return (
            f"a message of the event stream is longer than {MAX_MESSAGE_CHARS} characters; is this the gpufair service?"
        )


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One dispatched message. ``event`` is "message" where the stream named none."""

    event: str
    data: str
    id: str = ""


class SseParser:
    """Feed it what arrives; it keeps the unfinished rest. A connection needs its own parser."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._first = True
        self._after_cr = False
        self._event, self._data, self._id = "", list[str](), ""
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseMessage]:
        """Messages completed by ``chunk``. A message that the stream's end cuts off is never given out.

        Raises:
            StreamTooLarge: A line or message exceeds ``MAX_MESSAGE_CHARS``.
        """
        text = self._decode.decode(chunk)
        if self._first and text:
            self._first = False
            text = text.removeprefix("\ufeff")
        done = [message for line in self._lines(text) if (message := self._line(line)) is not None]
        if len(self._rest) + self._size > MAX_MESSAGE_CHARS:
            raise StreamTooLarge
        return done

    def _lines(self, text: str) -> list[str]:
        if self._after_cr and text:
            # The CR of a CRLF that was split between two chunks has already ended its line.
            self._after_cr = False
            text = text.removeprefix("\n")
        if not text:
            return []
        self._after_cr = text.endswith("\r")
        # Only CR, LF and CRLF end a line here, unlike in str.splitlines().
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return lines

    def _line(self, line: str) -> SseMessage | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")  # a comment has the empty name
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
            self._size += len(value)
            if self._size > MAX_MESSAGE_CHARS:
                raise StreamTooLarge
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> SseMessage | None:
        event, data = self._event or "message", self._data
        self._event, self._data, self._size = "", [], 0
        return SseMessage(event, "\n".join(data), self._id) if data else None
