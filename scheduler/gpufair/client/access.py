"""Requests about who may do what: links to the pages, tokens, and who changed what."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from gpufair.client.calls import API, Call
from gpufair.client.marks import one_of
from gpufair.client.reading import read


@dataclass(frozen=True, slots=True)
class Link:
    """A path of the service that opens its pages, logged in, once and within ``lasts_s``."""

    path: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class TokenView:
    """What is known of a token. ``page``: it is a browser that is logged in. Instants are Unix seconds."""

    id: str
    user: str
    scope: str = field(metadata=one_of("read", "act", "manage"))
    label: str
    page: bool
    made_by: str
    made_s: float
    expires_s: float | None = None
    revoked_s: float | None = None

    def over(self, now_s: float) -> bool:
        """Whether it opens nothing any more."""
        return self.revoked_s is not None or (self.expires_s is not None and self.expires_s <= now_s)


@dataclass(frozen=True, slots=True)
class MadeToken(TokenView):
    """A new one, with the token itself, which is told this once."""

    token: str = ""


@dataclass(frozen=True, slots=True)
class TokenViews:
    """Tokens, the newest first."""

    tokens: tuple[TokenView, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A request that changed something. ``entries``: the first and the last entry of the journal that came of it."""

    number: int
    at_s: float
    user: str
    role: str
    token: str
    request: str
    entries: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """Who changed what, the newest first."""

    changes: tuple[Change, ...]


def link() -> Call[Link]:
    """Have a link made."""
    return Call("POST", f"{API}/dashboard/links", lambda data: read(Link, data), json={})


def tokens(user: str | None = None) -> Call[TokenViews]:
    """The caller's tokens; for who sees everything those of ``user``, or all."""
    params = {} if user is None else {"user": user}
    return Call("GET", f"{API}/tokens", lambda data: read(TokenViews, data), params)


def make_token(
    scope: str = "read", label: str = "", lasts_s: float | None = None, user: str | None = None
) -> Call[MadeToken]:
    """Make a token for the caller (an operator: for ``user``) that ends after ``lasts_s``, or when it is revoked."""
    given = {"scope": scope, "label": label, "lasts_s": lasts_s, "user": user}
    body = {key: value for key, value in given.items() if value is not None}
    return Call("POST", f"{API}/tokens", lambda data: read(MadeToken, data), json=body, repeatable=False)


def revoke_token(token: str) -> Call[TokenView]:
    """Revoke the token with this id."""
    return Call("DELETE", f"{API}/tokens/{quote(token, safe='')}", lambda data: read(TokenView, data))


def audit(user: str | None = None, limit: int = 100, before: int = 0) -> Call[Audit]:
    """Who changed what; auditors and operators only."""
    params = {"limit": str(limit), "before": str(before)} | ({} if user is None else {"user": user})
    return Call("GET", f"{API}/audit", lambda data: read(Audit, data), params)
