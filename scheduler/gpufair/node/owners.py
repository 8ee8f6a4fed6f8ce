"""As whom a workload runs: which account of this machine belongs to which user, by the configuration of an agent.

Only an agent that runs as root can start workloads as others. It never starts one as root, nor as an account of the
system; whom it finds no account for is refused, with the reason.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpufair.core.errors import GpufairError

LEAST_UID: Final = 1000  # below are root and the accounts of the system, on every usual Linux
MOST_UID: Final = (1 << 32) - 2
# What a workload gets of the agent's own environment, which is root's: how to find programs, and how to speak.
_PASSED: Final = re.compile(r"PATH|LANG|LANGUAGE|LC_[A-Z]+|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|SSL_CERT_(FILE|DIR)")
_DIRECT: Final = {"uid", "gid", "groups", "home", "shell"}


class NoAccount(GpufairError):
    """A workload cannot run as its owner here. The text is for the owner."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine. ``groups`` are all of its groups, ``gid`` among them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Account:
        """Of ``asdict``, read from JSON. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        groups = tuple(int(group) for group in data["groups"])
        return cls(str(data["name"]), int(data["uid"]), int(data["gid"]), groups, str(data["home"]), str(data["shell"]))

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """A clean environment, as after a login."""
        passed = {name: value for name, value in base.items() if _PASSED.fullmatch(name)}
        return passed | {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


@dataclass(frozen=True, slots=True)
class Owners:
    """``users``: the account's name of a user, where that is another one; or the account itself, as a table of ``uid``
    and, if wanted, ``gid``, ``groups``, ``home``, ``shell``, for machines (containers) that know no accounts.

    ``environment``: variables that all workloads get.
    """

    least_uid: int = LEAST_UID
    users: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Owners:
        """Of an object of JSON or TOML.

        Raises:
            ValueError: It is not one of these; the text says what is wrong.
        """
        if unknown := sorted(set(data) - {"least_uid", "users", "environment"}):
            raise ValueError(f"{unknown[0]!r} is unknown; known are least_uid, users, environment")
        least = data.get("least_uid", LEAST_UID)
        if isinstance(least, bool) or not isinstance(least, int) or not 0 < least <= MOST_UID:
            raise ValueError(f"least_uid = {least!r} has to be a number from 1 to {MOST_UID}")
        users, environment = data.get("users", {}), data.get("environment", {})
        if not isinstance(users, dict) or not isinstance(environment, dict):
            raise ValueError("users and environment have to be tables")
        for user, account in users.items():
            if isinstance(account, dict):
                _direct(user, account)
            elif not isinstance(account, str) or not account:
                raise ValueError(f"the account of {user!r} has to be its name, or a table with its uid")
        if not all(isinstance(value, str) for value in environment.values()):
            raise ValueError("values of environment have to be texts")
        return cls(least, users, environment)

    def account(self, user: str) -> Account:
        """The account of a user. Blocks where the machine asks a server for its accounts.

        Raises:
            NoAccount: There is none, or none that may run workloads.
        """
        wanted = self.users.get(user, user)
        found = _direct(user, wanted) if isinstance(wanted, Mapping) else _known(user, wanted)
        if found.uid == 0 or found.uid < self.least_uid or 0 in found.groups:
            raise NoAccount(
                f"workloads of {user!r} would run here as {found.name!r} (user id {found.uid}), which is no account of a "
                f"person: it has to be {self.least_uid} or more, and not in root's group; ask the operator of this machine "
                "to name your account in its table of owners"
            )
        return found


def _known(user: str, name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
    except (KeyError, ValueError, OSError):  # the second: a name that no account can have
        raise NoAccount(
            f"user {user!r} has no account on this machine (looked for {name[:80]!r}), and workloads run as their owners "
            "here; ask its operator for an account, or to name yours in its table of owners"
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")


def _direct(user: str, table: Mapping[str, Any]) -> Account:
    if unknown := sorted(set(table) - _DIRECT):
        raise ValueError(f"{user!r}: {unknown[0]!r} is unknown; known are {', '.join(sorted(_DIRECT))}")
    uid = table.get("uid")
    gid, groups = table.get("gid", uid), table.get("groups", [])
    numbers: list[Any] = [uid, gid, *groups] if isinstance(groups, list) else [None]
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= MOST_UID for one in numbers):
        raise ValueError(f"{user!r}: uid, gid and groups have to be numbers from 0 to {MOST_UID}")
    home, shell = table.get("home", "/"), table.get("shell", "/bin/sh")
    if not all(isinstance(path, str) and path.startswith("/") for path in (home, shell)):
        raise ValueError(f"{user!r}: home and shell have to be absolute paths")
    return Account(user, int(numbers[0]), int(numbers[1]), tuple(dict.fromkeys(numbers[1:])), home, shell)


def private_group(folder_uid: int, folder_gid: int) -> int | None:
    """The group of a folder if nobody but the folder's owner is in it; so what it may read is read by no one else."""
    try:
        owner, group = pwd.getpwuid(folder_uid), grp.getgrgid(folder_gid)
    except KeyError:
        return None
    own = owner.pw_gid == folder_gid and folder_gid != 0
    return folder_gid if own and set(group.gr_mem) <= {owner.pw_name} else None
