"""Where the service is and what opens it: explicit arguments, the environment, or the state folder.

Order: arguments > ``$GPUFAIR_URL`` with ``$GPUFAIR_TOKEN``, ``$GPUFAIR_TOKEN_FILE`` or ``$GPUFAIR_TOKEN_FROM`` (the
notebook server's own at its JupyterHub) > ``service.json``.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from gpufair.client.errors import Unavailable
from gpufair.paths import SERVICE_FILE, state_dir

MAX_FILE_BYTES = 64 * 1024  # service.json and token files are a few hundred bytes
FROM_HUB = "jupyterhub"
START_IT = "start one with `gpufair serve`, or point $GPUFAIR_URL at a running service"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service's address. ``folder`` is its state folder where it was found there: it may move when restarted.

    ``others`` are addresses of services one of which leads in its place when it does not. ``ca`` is a file of the
    authorities that may sign the service's certificate ("": those that the machine knows), ``certificate`` one of ours.
    """

    url: str
    token: str = field(default="", repr=False)
    folder: Path | None = None
    pid: int | None = None
    others: tuple[str, ...] = ()
    ca: str = ""
    certificate: str = ""

    def next(self) -> Endpoint:
        """The next of the addresses; after the last the first again."""
        url, *others = *self.others, self.url
        return replace(self, url=url, others=tuple(others))

    @property
    def loopback(self) -> bool:
        """On this machine: then no proxy may stand in between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def discover(
    url: str | None = None,
    token: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The endpoint to use; nothing is sent yet.

    An explicit ``folder`` beats ``$GPUFAIR_URL``: who names a state folder means the service that lives there.

    Raises:
        Unavailable: No address was given and the state folder names no live service, or a file cannot be trusted.
    """
    if url:
        return _named(url, "the given URL", token if token is not None else _environ_token(environ), environ)
    if folder is None and (shared := environ.get("GPUFAIR_URL")):
        return _named(shared, "$GPUFAIR_URL", token if token is not None else _environ_token(environ), environ)
    return from_folder(state_dir(folder, environ))


def _named(urls: str, source: str, token: str, environ: Mapping[str, str]) -> Endpoint:
    """The first of some addresses with commas between them, which knows of the others."""
    first, *others = [checked(url.strip(), source) for url in urls.split(",")]
    ca, certificate = environ.get("GPUFAIR_CA", ""), environ.get("GPUFAIR_CLIENT_CERTIFICATE", "")
    return Endpoint(first, token, others=tuple(others), ca=ca, certificate=certificate)


def from_folder(folder: Path) -> Endpoint:
    """The service that ``service.json`` in ``folder`` names, if its process lives.

    Raises:
        Unavailable: There is none, it is dead, or the file is not owner-only (its token would be anybody's).
    """
    path = folder / SERVICE_FILE
    try:
        data = json.loads(private_text(path))
    except FileNotFoundError:
        raise Unavailable(
            "looking for the scheduler service", f"none is running ({path} is not there)", START_IT
        ) from None
    except OSError as err:
        raise Unavailable(
            "looking for the scheduler service",
            f"{path} cannot be read ({err.strerror or err})",
            "use a state folder of your own",
        ) from err
    except ValueError as err:
        raise Unavailable(
            "looking for the scheduler service", f"{path} holds no JSON ({err})", f"remove it and {START_IT}"
        ) from err
    if not isinstance(data, dict) or not isinstance(data.get("url"), str) or not isinstance(data.get("token"), str):
        raise Unavailable(
            "looking for the scheduler service", f"{path} has no url and token", f"remove it and {START_IT}"
        )
    pid = data.get("pid")
    if not isinstance(pid, int) or not is_alive(pid):
        raise Unavailable(
            "looking for the scheduler service", f"the one in {path} (pid {pid}) is no longer alive", START_IT
        )
    return Endpoint(checked(data["url"], str(path)), data["token"], folder=folder, pid=pid)


def _environ_token(environ: Mapping[str, str]) -> str:
    if token := environ.get("GPUFAIR_TOKEN"):
        return token.strip()
    if not (name := environ.get("GPUFAIR_TOKEN_FILE")):
        return _hubs_token(environ)
    path = Path(name).expanduser()
    try:
        return private_text(path).strip()
    except (OSError, UnicodeDecodeError) as err:
        raise Unavailable(
            "reading the token in $GPUFAIR_TOKEN_FILE", f"{path} cannot be read ({err})", "point it at your token file"
        ) from err


def _hubs_token(environ: Mapping[str, str]) -> str:
    if not (place := environ.get("GPUFAIR_TOKEN_FROM")):
        return ""
    asked = "reading the token that $GPUFAIR_TOKEN_FROM names"
    if place != FROM_HUB:
        raise Unavailable(asked, f"{place[:80]!r} is no place of tokens", f"set it to {FROM_HUB}, or leave it out")
    if not (token := environ.get("JUPYTERHUB_API_TOKEN", "").strip()):
        raise Unavailable(asked, "$JUPYTERHUB_API_TOKEN is not set: no JupyterHub has started this", "set $GPUFAIR_TOKEN_FILE instead")
    return token


def checked(
    url: str,
    source: str,
    like: str = "write it like http://127.0.0.1:8123",
    elsewhere: str = "put the token into $GPUFAIR_TOKEN_FILE",
) -> str:
    """The address of a service, without a slash at its end.

    Args:
        source: Where it was given.
        like: What to do where it is none.
        elsewhere: What to do with a user and a password in it.

    Raises:
        Unavailable: It is none, or holds a secret.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise Unavailable(
            f"reading {source}", f"{url[:200]!r} is no http(s) address", like
        )
    if parts.username or parts.password:
        raise Unavailable(f"reading {source}", "the address holds a user or password", elsewhere)
    return url.rstrip("/")


def private_text(path: Path) -> str:
    """The text of a small file that holds a token; refused if others could have read or written it."""
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid not in {os.geteuid(), 0}:
            raise Unavailable(f"reading {path}", f"it belongs to user id {about.st_uid}", "use a file of your own")
        # Mounted secrets are root's and world-readable inside their container: that is the operator's choice.
        if about.st_mode & (0o022 if about.st_uid == 0 else 0o077):
            raise Unavailable(
                f"reading {path}", "others can read or write it, and it holds a token", f"run `chmod 600 {path}`"
            )
        return file.read(MAX_FILE_BYTES).decode()


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists on this machine, whoever owns it."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's, but alive
    return True
