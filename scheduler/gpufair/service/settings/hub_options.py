"""``[hub]`` of the configuration: the JupyterHub whose tokens are good here, and what they open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpufair.client.endpoint import Endpoint
from gpufair.core.units import MINUTE, SECOND, Millis
from gpufair.service.settings.tables import NAME, NAME_RULE, Table, shown

API_PATH: Final = "/hub/api"
KINDS: Final = ("group", "scope")  # of what the Hub says about a token, and a role can be given for
CACHE: Final = Millis(MINUTE)
TIMEOUT: Final = Millis(5 * SECOND)
LONGEST_CACHE: Final = Millis(10 * MINUTE)  # what is revoked at the Hub must end here while somebody still looks on


class Mandate(StrEnum):
    """What somebody may do with a token of the Hub. The order is that of precedence, the least first."""

    RESEARCHER = "researcher"  # what is theirs
    NAMED = "named"  # all that gpufair.toml gives to their name
    AUDITOR = "auditor"
    OPERATOR = "operator"


class Admits(StrEnum):
    """Which users of the Hub are researchers, if no role is mapped to them."""

    NAMED = "named"  # those whom gpufair.toml names
    EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class HubOptions:
    """``url`` "": there is no Hub.

    Attributes:
        cache: How long what the Hub said of a token counts.
        scopes: One of these a token must have; none: that it may use its user's own servers, as those servers' tokens may.
        names: Users here by their name at the Hub, where the two differ.
        roles: By ``group:NAME`` and ``scope:NAME``.
    """

    url: str = ""
    ca: Path | None = None
    cache: Millis = CACHE
    timeout: Millis = TIMEOUT
    admits: Admits = Admits.NAMED
    scopes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Mandate] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.url)


def read_hub(table: Table, folder: Path) -> HubOptions:
    """The table as options. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    insecure = table.boolean("insecure", default=False)
    options = HubOptions(
        url=_url(table, insecure=insecure),
        ca=folder / table.text("ca", "", longest=4096) if table.has("ca") else None,
        cache=table.duration("cache", CACHE, SECOND, LONGEST_CACHE),
        timeout=table.duration("timeout", TIMEOUT, SECOND, MINUTE),
        admits=Admits(table.choice("admits", Admits.NAMED, list(Admits))),
        scopes=table.strings("scopes"),
        names=_names(table),
        roles=_roles(table),
    )
    if options.ca is not None and not options.ca.is_file():
        table.fail(f"ca names {options.ca}, which is not there; correct the path (it counts from this file)", "ca")
    if not options and table.keys:
        table.fail('there is no url; add the address of the Hub\'s API, like url = "http://127.0.0.1:8081/hub/api"', None)
    table.finish()
    return options


def _url(table: Table, *, insecure: bool) -> str:
    url = table.text("url", "", longest=1024).rstrip("/")
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        good = good and parts.path.endswith(API_PATH) and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        good = False
    if not good:
        table.fail(
            f"url = {shown(url)}: expected the address of the Hub's API, as $JUPYTERHUB_API_URL has it in a notebook server, "
            f'like "http://127.0.0.1:8081{API_PATH}"',
            "url",
        )
    if parts.scheme == "http" and not insecure and not Endpoint(url).loopback:
        table.fail("url: tokens would travel unencrypted; use https://, or say insecure = true on a network of your own", "url")
    return url


def _names(table: Table) -> dict[str, str]:
    names = table.labels("names")
    inner = table.table("names")
    for theirs, ours in names.items():
        if NAME.fullmatch(ours) is None:
            inner.fail(f"{shown(theirs)} = {shown(ours)}: a name is {NAME_RULE}", theirs)
        if list(names.values()).count(ours) > 1:
            inner.fail(f"{shown(ours)} is there twice, and two people would be one", theirs)
    return names


def _roles(table: Table) -> dict[str, Mandate]:
    inner = table.table("roles")
    roles: dict[str, Mandate] = {}
    for what in inner.keys:
        kind, _, name = what.partition(":")
        if kind not in KINDS or not name:
            inner.fail(f'{shown(what)}: expected "group:NAME" or "scope:NAME", as the Hub calls them', what)
        roles[what] = Mandate(inner.choice(what, "", list(Mandate)))
    inner.finish()
    return roles
