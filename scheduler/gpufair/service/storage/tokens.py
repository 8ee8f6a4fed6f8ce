"""Tokens that people make beside those of the configuration: for a script, a monitor, a page in a browser.

Only a digest of each is kept, so that who reads the database cannot use it. Each has a scope, ends by itself if it is given
an end, and can be revoked. All are known in memory (every request asks), and what changes is durable before it counts.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from gpufair.clock import Clock
from gpufair.core.errors import GpufairError
from gpufair.core.units import DAY
from gpufair.service.storage.audit import doer, line, write
from gpufair.service.storage.database import metadata

if TYPE_CHECKING:
    from gpufair.service.storage.journal import Journal  # which makes our table

PREFIX: Final = "gpf_"  # so that one which was left in a file or a log is recognised, by people and by scanners
MOST_OF_ONE: Final = 100  # tokens of one user
KEPT_MS: Final = 30 * DAY  # one that is over stays listed for so long, so that its owner can see what became of it

_tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("user", sa.String(64), nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("label", sa.String(64), nullable=False),
    sa.Column("page", sa.Boolean, nullable=False),
    sa.Column("parent", sa.String(16), nullable=False),
    sa.Column("made_by", sa.String(64), nullable=False),
    sa.Column("made_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=True),
    sa.Column("revoked_ms", sa.BigInteger, nullable=True),
)


class Scope(StrEnum):
    """How much of what its user may do a token may do."""

    READ = "read"  # look at whatever they may see
    ACT = "act"  # and submit, stop and steer what is theirs
    MANAGE = "manage"  # and all else that they may: budgets, nodes, for others

    def includes(self, other: Scope) -> bool:
        """Whether it is at least as much as ``other``."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


class TooManyTokens(GpufairError):
    """A user has as many tokens as one may have."""

    def __init__(self, user: str) -> None:
        super().__init__(user)
        self.user = user

    def __str__(self) -> str:
        return f"{self.user!r} has {MOST_OF_ONE} tokens already; revoke some (`gpufair tokens list`, `gpufair tokens revoke`)"


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; the token itself is not.

    Attributes:
        page: It is the cookie of a browser that logged in, and good for nothing else.
        parent: The token that made it for its own user; it ends with that one. "": one of the configuration did, or another user.
    """

    id: str
    digest: str
    user: str
    scope: Scope
    label: str
    page: bool
    parent: str
    made_by: str
    made_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None

    def over(self, now_ms: int) -> bool:
        """Whether it opens nothing any more."""
        return self.revoked_ms is not None or (self.expires_ms is not None and self.expires_ms <= now_ms)

    def to_dict(self) -> dict[str, Any]:
        """For the API: instants are Unix seconds."""

        def seconds(ms: int | None) -> float | None:
            return None if ms is None else ms / 1000

        return {
            "id": self.id,
            "user": self.user,
            "scope": str(self.scope),
            "label": self.label,
            "page": self.page,
            "made_by": self.made_by,
            "made_s": seconds(self.made_ms),
            "expires_s": seconds(self.expires_ms),
            "revoked_s": seconds(self.revoked_ms),
        }


class Tokens:
    """All tokens of a service. ``load`` before the first use."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._by_digest: dict[str, Token] = {}

    async def load(self) -> None:
        """Read them; those that have been over for long are forgotten.

        Raises:
            StoreUnavailable: They can't be read.
        """
        before = self._clock.now() - KEPT_MS

        def read(connection: sa.Connection) -> list[Token]:
            gone = sa.or_(_tokens.c.expires_ms < before, _tokens.c.revoked_ms < before)
            connection.execute(sa.delete(_tokens).where(gone))
            return [_token(row) for row in connection.execute(sa.select(_tokens)).mappings()]

        self._by_digest = {token.digest: token for token in await self._journal.within(read)}

    def find(self, token: str) -> Token | None:
        """What a token is, if it is one and still opens something."""
        # By digest: how long a look takes tells nothing of the tokens that there are.
        found = self._by_digest.get(_digest(token))
        return None if found is None or self.over(found) else found

    def over(self, token: Token) -> bool:
        """Whether it, or the one that it was made with, opens nothing any more."""
        known = self._by_digest.get(token.digest)
        return known is None or known.over(self._clock.now())

    def of(self, user: str | None) -> list[Token]:
        """Those of a user, or all, the newest first."""
        found = (token for token in self._by_digest.values() if user in (None, token.user))
        return sorted(found, key=lambda token: (-token.made_ms, token.id))

    async def create(
        self,
        user: str,
        scope: Scope,
        made_by: str,
        *,
        label: str = "",
        lasts_ms: int | None = None,
        parent: Token | None = None,
        page: bool = False,
    ) -> tuple[Token, str]:
        """Make one; it is durable when this returns.

        Args:
            lasts_ms: How long it opens something; None: until it is revoked.
            parent: What it must not outlive.

        Returns: What is known of it, and the token, which nobody can find out again.

        Raises:
            TooManyTokens: The user has enough. (Of pages that are logged in, the oldest makes room.)
            StoreUnavailable: It could not be kept.
        """
        now = self._clock.now()
        ends = [] if lasts_ms is None else [now + lasts_ms]
        if parent is not None and parent.expires_ms is not None:
            ends.append(parent.expires_ms)
        live = [one for one in self.of(user) if not one.over(now)]
        if len(live) >= MOST_OF_ONE:
            pages = [one for one in live if one.page]
            if not page or not pages:
                raise TooManyTokens(user)
            await self._revoke(pages[-1:])
        token = PREFIX + secrets.token_urlsafe(32)
        made = Token(
            id=secrets.token_hex(4),
            digest=_digest(token),
            user=user,
            scope=scope,
            label=label,
            page=page,
            parent=parent.id if parent else "",
            made_by=made_by,
            made_ms=now,
            expires_ms=min(ends, default=None),
        )
        row = asdict(made) | {"scope": str(scope)}
        await self._execute(sa.insert(_tokens).values(row))
        self._by_digest[made.digest] = made
        return made, token

    async def revoke(self, token: Token) -> None:
        """Revoke it and all that were made with it; durable when this returns.

        Raises:
            StoreUnavailable: It could not be written down; it is not revoked.
        """
        chosen, new = {token.id}, [token]
        while new:
            new = [one for one in self._by_digest.values() if one.parent in chosen and one.id not in chosen]
            chosen |= {one.id for one in new}
        await self._revoke(one for one in self._by_digest.values() if one.id in chosen)

    async def _revoke(self, chosen: Iterable[Token]) -> None:
        now = self._clock.now()
        gone = [one for one in chosen if one.revoked_ms is None]
        digests = [one.digest for one in gone]
        await self._execute(sa.update(_tokens).where(_tokens.c.digest.in_(digests)).values(revoked_ms=now))
        self._by_digest |= {one.digest: replace(one, revoked_ms=now) for one in gone}

    async def _execute(self, change: sa.Insert | sa.Update) -> None:
        who, now = doer.get(), self._clock.now()

        def execute(connection: sa.Connection) -> None:
            connection.execute(change)
            if who is not None:
                write([line(now, who)], connection)

        await self._journal.within(execute)


def _digest(token: str) -> str:
    # No salt and no slow hash: it is 256 random bits, which nobody can try through.
    return hashlib.sha256(token.encode()).hexdigest()


def _token(row: Any) -> Token:
    return Token(**{**row, "scope": Scope(row["scope"])})
