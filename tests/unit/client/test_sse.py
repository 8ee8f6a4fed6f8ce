"""The event stream is read right, however the network cuts it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.client.sse import MAX_MESSAGE_CHARS, SseMessage, SseParser, StreamTooLarge

STREAM = (
    '\ufeff: welcome\r\n\r\nevent: workload\r\ndata: {"a":\r\ndata:  1}\r\nid: 7\r\n\r\n'
    "data:no name\r\r:keep alive\n\nevent: synced\ndata\n\nretry: 10\nnonsense\n\ndata: zweiter Käse ☃\u2028bleibt\n\ndata: cut off"
).encode()
EXPECTED = [
    SseMessage("workload", '{"a":\n 1}', "7"),
    SseMessage("message", "no name", "7"),
    SseMessage("synced", "", "7"),
    SseMessage("message", "zweiter Käse ☃\u2028bleibt", "7"),
]


def read(chunks: list[bytes]) -> list[SseMessage]:
    parser = SseParser()
    return [message for chunk in chunks for message in parser.feed(chunk)]


def test_a_stream_in_one_piece() -> None:
    """All three line ends, comments, a byte order mark, data over several lines; what is cut off at the end is dropped."""
    assert read([STREAM]) == EXPECTED


def test_a_stream_byte_by_byte() -> None:
    """A CRLF or a character of several bytes may be split between two packets."""
    assert read([bytes([byte]) for byte in STREAM]) == EXPECTED


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cutting_changes_nothing(cuts: list[int]) -> None:
    """Where packets begin and end is chance."""
    at = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in pairwise(at)]) == EXPECTED


def test_an_endless_message_is_refused() -> None:
    """A server gone wrong must not fill the client's memory, with one long line or with many."""
    with pytest.raises(StreamTooLarge, match="gpufair service"):
        read([b"data: " + b"x" * MAX_MESSAGE_CHARS + b"y"])
    with pytest.raises(StreamTooLarge):
        read([b"data: " + b"x" * (MAX_MESSAGE_CHARS // 8) + b"\n"] * 9)
