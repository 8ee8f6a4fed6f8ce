"""Who a user of the Hub is here, and what they may do with the token that they showed: as little as was not said."""

from __future__ import annotations

from collections.abc import Collection

from gpufair.service.identity.hub import HubUser
from gpufair.service.problems import Forbidden
from gpufair.service.settings.hub_options import Admits, HubOptions, Mandate
from gpufair.service.settings.tables import NAME


def admitted(user: HubUser, options: HubOptions, owner: str, named: Collection[str]) -> tuple[str, Mandate]:
    """Their name here, and their mandate.

    Args:
        owner: Whose state folder this is: no user of the Hub, unless the configuration says so.
        named: Whom the configuration names; empty: anybody may be a user.

    Raises:
        Forbidden: The token opens nothing here.
    """
    if user.kind != "user":
        raise Forbidden(f"the Hub says that this token is of its {user.kind} {user.name[:80]!r}; only its users are known here")
    name = options.names.get(user.name, user.name)
    somebody_elses = user.name not in options.names and name in options.names.values()
    if somebody_elses or (name == owner and name not in named) or NAME.fullmatch(name) is None:
        raise Forbidden(
            f"the Hub says that this token is {user.name[:80]!r}'s, and nobody of the Hub can have that name here; give them "
            "one in [hub.names] of gpufair.toml"
        )
    if not _made_for_us(user, options.scopes):
        wanted = " or ".join(options.scopes) or "access:servers of its user"
        raise Forbidden(f"this token of {name!r} was not made for this service: it has not the scope {wanted}")
    given = {role for what, role in options.roles.items() if what in user.words}
    if name in named or not named or options.admits is Admits.EVERYBODY:
        given.add(Mandate.RESEARCHER)
    if not given:
        raise Forbidden(
            f"the Hub knows {name!r}, but gpufair.toml does not: name them there in users, map one of their groups in "
            '[hub.roles], or say admits = "everybody" in [hub]'
        )
    return name, max(given, key=list(Mandate).index)


def _made_for_us(user: HubUser, scopes: Collection[str]) -> bool:
    """Other services get tokens when somebody logs in there. Those tell who that is, too, and must open nothing here."""
    if scopes:
        return not user.scopes.isdisjoint(scopes)
    # Whoever may use somebody's servers runs code as them, and so has what those servers have.
    own = {"access:servers", f"access:servers!user={user.name}"}
    return any(scope in own or scope.startswith(f"access:servers!server={user.name}/") for scope in user.scopes)
