"""Requests about who may do what: links to the pages, tokens, and who changed what."""

from __future__ import annotations

from dataclasses import dataclass

from gpufair.client.calls import API, Call
from gpufair.client.reading import read


@dataclass(frozen=True, slots=True)
class Link:
    """A path of the service that opens its pages, logged in, once and within ``lasts_s``."""

    path: str
    lasts_s: float


def link() -> Call[Link]:
    """Have a link made."""
    return Call("POST", f"{API}/dashboard/links", lambda data: read(Link, data), json={})
