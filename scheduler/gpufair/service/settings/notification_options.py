"""``[notifications]`` of the configuration: through which channels people are told, and where each of them is reached."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from gpufair.core.errors import GpufairError
from gpufair.core.units import MINUTE, SECOND, Millis
from gpufair.service.settings.tables import NAME, Table, shown
from gpufair.wire import NOTIFY

WEBHOOK, MAIL = "webhook", "mail"
SECURITIES = ("starttls", "tls", "none")
TIMEOUT = Millis(10 * SECOND)
MAX_SECRET_BYTES = 4096
_ADDRESS = re.compile(r"[^@\s<>,;\"\\]{1,64}@[A-Za-z0-9.-]{1,255}")


class NoSecret(GpufairError):
    """A secret that the configuration names cannot be read."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where, self.why = where, why

    def __str__(self) -> str:
        return f"the secret in {self.where} cannot be read ({self.why}); put it there, or correct the configuration"


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where a secret is: a file, read anew each time, so that it can be replaced; or a variable. Neither: there is none."""

    file: Path | None = None
    variable: str = ""

    def __bool__(self) -> bool:
        return bool(self.file or self.variable)

    def reader(self) -> Callable[[], str]:
        """What reads it, and blocks. It raises ``NoSecret`` if it is not there.

        A variable is taken out of the environment now: agents inherit that, and so would the users' kernels.
        """
        if self.variable:
            return partial(self._kept, os.environ.pop(self.variable, ""))
        return self._in_file

    def _kept(self, found: str) -> str:
        if not found:
            raise NoSecret(f"${self.variable}", "it is not set")
        return found

    def _in_file(self) -> str:
        if self.file is None:
            return ""
        try:
            with self.file.open("rb") as file:
                return file.read(MAX_SECRET_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as err:
            raise NoSecret(str(self.file), getattr(err, "strerror", None) or "it is no text") from err


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """``url`` is for all who have none of their own in ``users``; "": only those."""

    url: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    secret: SecretPlace = SecretPlace()
    timeout: Millis = TIMEOUT

    def address(self, user: str) -> str:
        """Where a user's notices go; "": nowhere."""
        return self.users.get(user, self.url)


@dataclass(frozen=True, slots=True)
class MailOptions:
    """``host`` "": no mail. ``domain``: of the addresses of those who are not in ``users``."""

    host: str = ""
    port: int = 587
    security: str = "starttls"
    user: str = ""
    password: SecretPlace = SecretPlace()
    sender: str = ""
    domain: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    timeout: Millis = TIMEOUT

    def address(self, user: str) -> str:
        """Where a user's notices go; "": nowhere."""
        if not self.host:
            return ""
        return self.users.get(user) or (f"{user}@{self.domain}" if self.domain else "")


@dataclass(frozen=True, slots=True)
class NotificationOptions:
    """``default``: what is told of batch work whose owner does not say."""

    default: tuple[str, ...] = ()
    webhook: WebhookOptions = WebhookOptions()
    mail: MailOptions = MailOptions()

    @property
    def any(self) -> bool:
        """Whether there is a channel at all."""
        return bool(self.webhook.url or self.webhook.users or self.mail.host)

    def channels(self, user: str) -> tuple[str, ...]:
        """Through which channels a user is reached."""
        ways = ((WEBHOOK, self.webhook.address(user)), (MAIL, self.mail.address(user)))
        return tuple(name for name, address in ways if address)


def read_notifications(table: Table, folder: Path) -> NotificationOptions:
    """The table as options. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    for word in (default := table.strings("default")):
        if word not in NOTIFY:
            table.fail(f"default: {shown(word)} is nothing that is told; allowed are {', '.join(NOTIFY)}", "default")
    options = NotificationOptions(
        default=tuple(word for word in NOTIFY if word in default),  # each once, in their usual order
        webhook=_webhook(table.table("webhook"), folder),
        mail=_mail(table.table("smtp"), folder),
    )
    table.finish()
    return options


def _webhook(table: Table, folder: Path) -> WebhookOptions:
    url = table.text("url", "", longest=2048)
    users = _users(table)
    for name, address in (("url", url), *users.items()):
        if address and not safe_url(address):
            key = "url" if address is url else "users"
            table.fail(f"{name} = {shown(address)}: expected https://…, or http:// to this machine", key)
    options = WebhookOptions(
        url, users, read_secret(table, "secret", folder), table.duration("timeout", TIMEOUT, SECOND, Millis(MINUTE))
    )
    table.finish()
    return options


def _mail(table: Table, folder: Path) -> MailOptions:
    security = table.choice("security", "starttls", SECURITIES)
    options = MailOptions(
        host=table.text("host", ""),
        port=table.integer("port", {"starttls": 587, "tls": 465, "none": 25}[security], 1, 65535),
        security=security,
        user=table.text("user", ""),
        password=read_secret(table, "password", folder),
        sender=table.text("sender", ""),
        domain=table.text("domain", ""),
        users=_users(table),
        timeout=table.duration("timeout", TIMEOUT, SECOND, Millis(MINUTE)),
    )
    for name, address in (("sender", options.sender), *options.users.items()):
        if options.host and _ADDRESS.fullmatch(address) is None:
            key = "sender" if name == "sender" else "users"
            table.fail(f"{name} = {shown(address)}: expected an address like gpufair@example.org", key)
    if options.domain and _ADDRESS.fullmatch(f"user@{options.domain}") is None:
        table.fail(f"domain = {shown(options.domain)}: expected the part after the @, like example.org", "domain")
    if bool(options.user) != bool(options.password):
        table.fail("user and password_file (or password_env) belong together; give both or neither", "user")
    if options.user and security == "none" and not _loopback(options.host):
        table.fail('security = "none" would send the password in the open; use "starttls" or "tls"', "security")
    table.finish()
    return options


def _users(table: Table) -> dict[str, str]:
    users = table.labels("users")
    for name, address in users.items():
        if NAME.fullmatch(name) is None or len(address) > 2048 or any(ord(char) < 32 for char in address):
            table.fail(f"users: {shown(name)} = {shown(address)} is no user with an address", "users")
    return users


def read_secret(table: Table, name: str, folder: Path) -> SecretPlace:
    """The keys ``NAME_file`` and ``NAME_env``. ``folder``: what a relative path counts from."""
    file, variable = table.text(f"{name}_file", "", longest=4096), table.text(f"{name}_env", "")
    if file and variable:
        table.fail(f"{name}_file and {name}_env are both given; leave one out", f"{name}_env")
    return SecretPlace(folder / Path(file).expanduser() if file else None, variable)


def safe_url(url: str) -> bool:
    """Whether what is sent there can't be read on the way."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _loopback(host)))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
