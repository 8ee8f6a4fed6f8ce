"""Who asks, and what they may do."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gpufair.service.identity.attempts import Attempts
from gpufair.service.identity.hub import Hub, HubUser, digest
from gpufair.service.identity.mandates import admitted
from gpufair.service.identity.secrets import Secrets
from gpufair.service.problems import Forbidden, HubUnavailable, Unauthorized
from gpufair.service.settings.budgets import WHOLE_TREE
from gpufair.service.settings.hub_options import HubOptions, Mandate
from gpufair.service.settings.tables import NAME
from gpufair.service.storage.tokens import PREFIX, Scope, Token, Tokens

BY_HUB: Final = "hub-"  # begins the ids of the Hub's tokens


class Role(StrEnum):
    """What kind of caller."""

    OPERATOR = "operator"  # may do everything, for everybody
    AUDITOR = "auditor"  # sees everything, changes nothing
    USER = "user"  # acts on own workloads
    AGENT = "agent"  # speaks for one node, or one pod


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. ``name`` is the user, or the node or pod of an agent."""

    role: Role
    name: str
    owned: tuple[str, ...] = ()  # allocations whose division is theirs to decide; WHOLE_TREE: all of it
    scope: Scope = Scope.MANAGE
    token: Token | None = None  # the one that was shown; None: one of the configuration

    @property
    def operates(self) -> bool:
        """Whether they may act for others."""
        return self.role is Role.OPERATOR

    @property
    def plans(self) -> bool:
        """Whether they may see the whole state, to try budgets on it."""
        return self.sees_all or bool(self.owned)

    def divides(self, path: str) -> bool:
        """Whether the share of the allocation ``path`` is theirs to decide.

        Whoever owns an allocation divides what it has among those below it. Its own share is at its siblings' cost, so it is
        decided further up.
        """
        owns = any(owned == WHOLE_TREE or path.startswith(f"{owned}/") for owned in self.owned)
        return self.operates or (owns and self.scope.includes(Scope.MANAGE))

    @property
    def sees_all(self) -> bool:
        """Whether they may see what belongs to others."""
        return self.role in {Role.OPERATOR, Role.AUDITOR}

    @property
    def key(self) -> str:
        """Names the token that was shown, without telling it."""
        # Of the Hub's tokens people have as many as they like.
        return f"{self.role}:{self.name}" if self.token is None or self.by_hub else self.token.id

    @property
    def by_hub(self) -> bool:
        """Whether the Hub said who they are."""
        return self.token is not None and self.token.id.startswith(BY_HUB)

    def owns(self, user: str) -> bool:
        """Whether what belongs to ``user`` is theirs to see and, as far as they may change anything, to change."""
        return self.sees_all or (self.role is Role.USER and self.name == user)

    def require_owner(self, user: str, what: str) -> None:
        """Refuse others.

        Raises:
            Forbidden: ``user`` is somebody else.
        """
        if not self.owns(user):
            raise Forbidden(
                f"{what} belongs to {user!r}; only they or an operator may do this, and you are {self.name!r}"
            )

    def require_divider(self, paths: Iterable[str]) -> None:
        """Refuse all who may not decide the shares of every one of ``paths``.

        Raises:
            Forbidden: The share of one of them is not theirs to decide.
        """
        for path in paths:
            if not self.divides(path):
                above = path.rpartition("/")[0]
                who = f"who owns {above!r} or what is above it" if above else "who owns the whole tree"
                raise Forbidden(
                    f"the share of {path!r} is decided by {who} or an operator, and {self.name!r} is neither; "
                    "ask for it with `gpufair budgets request`, or see `budget_owners` in gpufair.toml"
                )

    def acting_for(self, user: str | None) -> str:
        """Whom a submission belongs to.

        Raises:
            Forbidden: A user named somebody else.
        """
        if user is None or user == self.name:
            return self.name
        if not self.operates:
            raise Forbidden(f"you are {self.name!r} and may not submit for {user!r}; only operators may act for others")
        return user


class Authenticator:
    """Knows every token of this service. They are looked for by their digests.

    Args:
        secrets: Tokens are derived from it.
        owner: The user that the state folder belongs to; the operator's token acts for them by default.
        users: Further users with a token of their own.
        operators: Users whose own token may act for others.
        owners: Users who own budgets, and which: their token may read the whole state, and decide how these are divided.
        auditors: Users whose token sees everything and changes nothing.
        tokens: Those that people made.
        attempts: Counts wrong ones.
    """

    def __init__(
        self,
        secrets: Secrets,
        owner: str,
        users: Iterable[str],
        operators: Iterable[str],
        owners: Mapping[str, tuple[str, ...]] | None = None,
        auditors: Iterable[str] = (),
        tokens: Tokens | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.owner = owner
        self._secrets = secrets
        self._tokens = tokens
        self._known: dict[bytes, Principal] = {}  # by the digest of their token
        self._people: dict[str, Principal] = {}
        self._named: frozenset[str] = frozenset()
        self._hub: Hub | None = None
        self.attempts = attempts or Attempts(0)
        self.configure(users, operators, owners, auditors)

    def configure(
        self,
        users: Iterable[str],
        operators: Iterable[str],
        owners: Mapping[str, tuple[str, ...]] | None = None,
        auditors: Iterable[str] = (),
    ) -> None:
        """Know these people from now on, and no others."""
        operating, auditing, owning = tuple(operators), tuple(auditors), owners or {}
        people = {self.owner: Principal(Role.OPERATOR, self.owner)}
        known = {_digest(self._secrets.operator_token().encode()): people[self.owner]}
        named = dict.fromkeys([*users, *operating, *auditing, *owning])
        for user in named:
            role = Role.OPERATOR if user in operating else Role.AUDITOR if user in auditing else Role.USER
            people[user] = Principal(role, user, owning.get(user, ()))
            known[_digest(self._secrets.user_token(user).encode())] = people[user]
        self._known, self._people, self._named = known, people, frozenset(named)

    async def use_hub(self, options: HubOptions) -> None:
        """Ask this Hub from now on about tokens that are not known here; one without address: none.

        Raises:
            OSError: Its file of certificates cannot be read; the one so far is still asked.
        """
        before = self._hub
        if before is not None and before.options == options:
            return
        self._hub = await Hub.open(options) if options else None
        if before is not None:
            await before.close()

    async def close(self) -> None:
        """Ask no Hub any more."""
        await self.use_hub(HubOptions())

    def acting(self, who: Principal, user: str | None) -> Principal:
        """``who``, or, where an operator acts for ``user``, that user with no more than their own rights.

        Raises:
            Forbidden: Somebody who is no operator named somebody else.
        """
        name = who.acting_for(user)
        return who if name == who.name else self._people.get(name, Principal(Role.USER, name))

    def dividers(self, paths: Collection[str]) -> list[str]:
        """Who is to be asked about the shares of ``paths``: their owners, or, where nobody owns them, the operators."""
        owners = [one.name for one in self._people.values() if one.owned and all(one.divides(path) for path in paths)]
        return owners or [one.name for one in self._people.values() if one.operates]

    def person(self, authorization: str | None) -> Principal:
        """The user or operator that an ``Authorization`` header names.

        Raises:
            Unauthorized: It names nobody.
        """
        token = _bearer(authorization)
        # Whoever guesses does not know the digest of what he guesses, so how long it takes to look for it tells nothing.
        return self._known.get(_digest(token)) or self._made(token.decode("latin-1"), page=False)

    def visitor(self, cookie: str) -> Principal:
        """Whose browser sends this cookie.

        Raises:
            Unauthorized: It is nobody's, or not any more.
        """
        return self._made(cookie, page=True)

    async def admit(self, authorization: str | None, address: str = "") -> Principal:
        """As ``person``, and of who is not known here the Hub is asked.

        Args:
            address: Whose request this is. The Hub is asked about so many of its wrong tokens, and no more.

        Raises:
            Unauthorized: Nobody knows them.
            Forbidden: The Hub does, but may not send them here.
            HubUnavailable: The Hub does not say.
        """
        try:
            return self.person(authorization)
        except Unauthorized:
            token, hub = _bearer(authorization).decode("latin-1"), self._hub
            if hub is None or token.startswith(PREFIX):
                raise
            if not (hub.knew(digest(token)) or self.attempts.worth_asking(address, authorization or "")):
                raise
            user = await hub.whose(token)
            if user is None:
                raise
            return self._sent(user, digest(token), hub.options)

    async def still(self, who: Principal, authorization: str | None = None) -> bool:
        """Whether the token of a caller who has been let in opens anything now.

        Args:
            authorization: What they showed. Without it, a token of the Hub is good as long as the Hub's last word on it.
        """
        if who.token is None:
            return True
        if not who.by_hub:
            return self._tokens is not None and not self._tokens.over(who.token)
        if authorization is None:
            return self._hub is not None and self._hub.vouches(who.token.digest)
        try:
            return await self.admit(authorization) == who
        except (Unauthorized, Forbidden, HubUnavailable):
            return False

    def knows(self, user: str) -> bool:
        """Whether a token of this user opens anything. Where the configuration names nobody, anybody may have one."""
        return user in self._people or not self._named

    def _made(self, token: str, *, page: bool) -> Principal:
        found = None if self._tokens is None else self._tokens.find(token)
        if found is None or found.page is not page:
            raise Unauthorized
        if found.parent.startswith(BY_HUB) and self._hub is not None:
            return Principal(Role.USER, found.user, scope=Scope.READ, token=found)
        if not self.knows(found.user):
            raise Unauthorized
        who = self._people.get(found.user, Principal(Role.USER, found.user))
        role = who.role
        if role is Role.OPERATOR and found.scope is not Scope.MANAGE:
            # What is for looking sees what they see; what is for their own work is a researcher's.
            role = Role.AUDITOR if found.scope is Scope.READ else Role.USER
        return replace(who, role=role, scope=found.scope, token=found)

    def agent(self, authorization: str | None, node: str) -> Principal:
        """The agent of ``node``.

        Raises:
            Unauthorized: The token is nobody's.
            Forbidden: It is somebody's, but not that agent's.
        """
        return self._agent(authorization, node, self._secrets.agent_token(node), f"of node {node!r}")

    def pod(self, authorization: str | None, pod: str) -> Principal:
        """The agent in ``pod``.

        Raises:
            Unauthorized: The token is nobody's.
            Forbidden: It is somebody's, but not that agent's.
        """
        return self._agent(authorization, pod, self._secrets.pod_token(pod), f"in pod {pod!r}")

    def _agent(self, authorization: str | None, name: str, token: str, where: str) -> Principal:
        if hmac.compare_digest(_bearer(authorization), token.encode()):
            return Principal(Role.AGENT, name)
        self.person(authorization)
        raise Forbidden(f"only the agent {where} may speak for it")

    def _sent(self, user: HubUser, digest_of_token: str, options: HubOptions) -> Principal:
        """Who somebody is here whom the Hub knows, and what they may do with that token.

        Raises:
            Forbidden: Nothing.
        """
        name, mandate = admitted(user, options, self.owner, self._named)
        who = self._people.get(name, Principal(Role.USER, name))
        role, scope = _ROLES.get(mandate, (who.role, Scope.MANAGE))
        token = Token(BY_HUB + digest_of_token[:8], digest_of_token, name, scope, "JupyterHub", page=False, parent="", made_by="", made_ms=0)
        return replace(who, role=role, scope=scope, token=token)


_ROLES: Final = {
    Mandate.RESEARCHER: (Role.USER, Scope.ACT),
    Mandate.AUDITOR: (Role.AUDITOR, Scope.READ),
    Mandate.OPERATOR: (Role.OPERATOR, Scope.MANAGE),
}


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _bearer(authorization: str | None) -> bytes:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > 512:
        raise Unauthorized
    return token.strip().encode()


def owner_name() -> str:
    """The user that runs this, as a name that can stand in a path."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid-{os.getuid()}"  # a container without an entry in passwd
    return name if NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:64] or "owner"
