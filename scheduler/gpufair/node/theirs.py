"""Files of others, in the hands of root: what an agent makes for the owner of a workload, and what it reads of theirs.

A folder that is another account's may hold anything at any name: a link to somebody else's file, a pipe that blocks its
reader, a file without an end. So nothing in one is opened by root without looking at what it is, and nothing is made
in one after it was given away. The folders above belong to root, or to the service, and cannot be exchanged.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gpufair.core.errors import GpufairError
from gpufair.node.owners import Account, private_group

MAX_BYTES = 64 << 20  # of a file of theirs that is read
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # with O_NONBLOCK a pipe is opened at once, and then refused


class NotTheirs(GpufairError):
    """A folder cannot be given to the owner of a workload. The text says what to do."""


def open_theirs(path: Path, uid: int, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a plain file that belongs to ``uid``; never by a link, of either kind.

    Raises:
        OSError: There is no such file, or it is anything else.
    """
    fd = os.open(path, flags | _OPEN)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != uid or about.st_nlink != 1:
        os.close(fd)
        raise PermissionError(f"{path} is no plain file of user id {uid}")
    return fd


def read_theirs(path: Path, uid: int) -> bytes:
    """Its content, up to ``MAX_BYTES``. Raises ``OSError`` as ``open_theirs``."""
    with open(open_theirs(path, uid), "rb") as file:
        return file.read(MAX_BYTES)


def passage(folder: Path) -> None:
    """Make a folder of root's that others may pass through to what is theirs, but not list.

    Raises:
        OSError: It cannot be made.
    """
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(0o711)


def give_folder(folder: Path, account: Account, readers: int | None = None) -> None:
    """Make ``folder``, which only ``account`` may enter; ``readers``: a group that may read what is in it as well.

    Raises:
        NotTheirs: There is one that belongs to somebody else.
        OSError: It cannot be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(fd)
        mine = about.st_uid == os.geteuid() and not os.listdir(fd)  # noqa: PTH208  # of this very folder, not of its name
        if not mine and about.st_uid != account.uid:
            raise NotTheirs(
                f"{folder} belongs to user id {about.st_uid}, and workloads run as their owners here; have the operator run "
                f"`chown -R {account.uid}:{account.gid} {folder}` once"
            )
        os.fchown(fd, account.uid, account.gid if readers is None else readers)
        # With the group's bit what is made in it is the group's, too.
        os.fchmod(fd, 0o700 if readers is None else 0o2750)
    except PermissionError as err:
        raise NotTheirs(
            f"{folder} cannot be given to {account.name}: {err.strerror}. If it is on NFS, root of this machine has to be "
            "root there as well (no_root_squash)"
        ) from err
    finally:
        os.close(fd)


def readers_of(folder: Path) -> int | None:
    """The group by which the owner of ``folder``, a service, may read what is made in it; None: there is none, or root is."""
    about = folder.stat()
    return None if about.st_uid == 0 else private_group(about.st_uid, about.st_gid)


def closed_to(account: Account, folder: Path) -> Path | None:
    """The first folder on the way to ``folder``, itself included, through which the account may not pass."""
    for each in (*reversed(folder.parents), folder):
        about = each.stat()
        if about.st_uid == account.uid:
            may = about.st_mode & stat.S_IXUSR
        elif about.st_gid in account.groups:
            may = about.st_mode & stat.S_IXGRP
        else:
            may = about.st_mode & stat.S_IXOTH
        if not may:
            return each
    return None


def give_places(account: Account, record_dir: Path, checkpoint_dir: str) -> None:
    """Make the folders in which a workload keeps its outputs and its checkpoints, so that they are its owner's alone.

    Args:
        record_dir: Readable for the service as well, which shows what is in it.
        checkpoint_dir: Of this workload; that of all of this user's is the one above. A URL is left alone.

    Raises:
        NotTheirs: One belongs to somebody else, or cannot be reached by the account.
        OSError: One cannot be made.
    """
    shared = record_dir.parent
    _open_the_way(shared, account)
    give_folder(record_dir, account, readers_of(shared))
    if "://" not in (place := checkpoint_dir.removeprefix("file://")):
        own = Path(place).parent
        _open_the_way(own.parent, account)
        give_folder(own, account)


def files_in(folder: Path) -> list[Path]:
    """The files of a workload's folder, for a service: where it is somebody else's, plain ones of that account only."""
    if not folder.is_dir():
        return []
    uid = folder.stat().st_uid
    if uid == os.geteuid():
        return list(folder.iterdir())
    about = ((path, path.lstat()) for path in folder.iterdir())
    return [path for path, one in about if stat.S_ISREG(one.st_mode) and one.st_uid == uid and one.st_nlink == 1]


def read_only(path: Path) -> BinaryIO:
    """A file of a workload's, for a service: with care where its folder is somebody else's. Raises ``OSError``."""
    uid = path.parent.stat().st_uid
    return path.open("rb") if uid == os.geteuid() else open(open_theirs(path, uid), "rb")


def _open_the_way(folder: Path, account: Account) -> None:
    if not folder.exists():
        passage(folder)
        about = folder.parent.stat()
        os.chown(folder, about.st_uid, about.st_gid)
    elif folder.stat().st_mode & stat.S_IWOTH:
        raise NotTheirs(f"everybody may write to {folder}, and exchange what is in it; have the operator close it to others")
    elif not (mode := stat.S_IMODE(folder.stat().st_mode)) & stat.S_IXOTH:
        folder.chmod(mode | 0o011)
    if (closed := closed_to(account, folder)) is not None:
        raise NotTheirs(
            f"{account.name} may not pass through {closed}, where the service keeps outputs and checkpoints, and workloads "
            f"run as their owners here; have the operator run `chmod o+x {closed}` (what is in it stays closed)"
        )
