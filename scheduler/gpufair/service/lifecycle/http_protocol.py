"""HTTP/1.1 on a connection: parsed by httptools where that is installed, in a third of the CPU time of h11.

httptools by itself keeps as much of a request's head as somebody cares to send, so that is bounded here.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MAX_HEAD_BYTES: Final = 64 * 1024  # of request line and headers, or of what follows a chunked body

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # there is no wheel of httptools for this platform
    PROTOCOL: type[asyncio.Protocol] | str = "h11"
else:

    class BoundedProtocol(HttpToolsProtocol):
        """One connection, which is closed when more than ``MAX_HEAD_BYTES`` come that are no body and complete no head."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._moved = False
            self._unread = 0  # bytes since the parser last got somewhere

        def data_received(self, data: bytes) -> None:
            """Bytes have come."""
            self._moved = False
            super().data_received(data)
            self._unread = 0 if self._moved else self._unread + len(data)
            if self._unread > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        def on_message_begin(self) -> None:
            """A request begins."""
            self._moved = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            """Its head is complete."""
            self._moved = True
            if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
                raise ValueError("the head is too large")  # which is answered as any other head that is wrong
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """A part of its body."""
            self._moved = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            """It is complete."""
            self._moved = True
            super().on_message_complete()

    PROTOCOL = BoundedProtocol
