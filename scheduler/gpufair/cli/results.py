"""The files that commands write: nothing that a command reads is overwritten, and no file is left half written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gpufair.cli.exits import CommandError

STDOUT: Final = Path("-")
_DATABASE: Final = b"SQLite format 3\0"
_BESIDE: Final = ("", "-wal", "-shm", "-journal")  # what a database has lying beside it


def check_writable(
    results: Mapping[str, Path | None], read: Iterable[Path | str | None] = (), printed: Collection[str] = ("--json",)
) -> None:
    """Refuse before a long run what could not be written after it, and what would destroy something.

    Args:
        results: Which file each option names, if it is given.
        read: What the command reads: files, folders, or what is none of either.
        printed: Options for which ``-`` is standard output.

    Raises:
        CommandError: A file cannot be written, is read, holds a database, or is named twice.
    """
    named: dict[Path, str] = {}
    sources = [source for source in read if source is not None]
    for option, path in results.items():
        if path is None or (path == STDOUT and option in printed):
            continue
        if path == STDOUT:
            raise CommandError(f"{option} takes a file, and {path} is none; name one")
        real = Path(os.path.realpath(path))
        if not real.parent.is_dir():
            raise CommandError(f"{path} cannot be written: there is no folder {real.parent}; make it first")
        if real.is_dir():
            raise CommandError(f"{path} cannot be written: it is a folder; name a file in it")
        if real in named:
            raise CommandError(f"{named[real]} and {option} both name {path}; name two files")
        named[real] = option
        if any(_is_part(real, source) for source in sources):
            raise CommandError(f"{option} names {path}, which this command reads: it would be lost; name another file")
        if _is_database(real):
            raise CommandError(f"{option} names {path}, which is a database: it would be lost; name another file")


def _is_part(path: Path, source: Path | str) -> bool:
    """Whether a file that is there is what is read, or lies in it."""
    with suppress(OSError, ValueError):  # it may be the name of something else, or not be there
        origin = Path(os.path.realpath(source))
        if origin.is_dir():
            return path.exists() and origin in path.parents
        beside = [origin.with_name(origin.name + more) for more in _BESIDE]
        return path in beside or path.samefile(origin)
    return False


def _is_database(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(_DATABASE)) == _DATABASE
    return False


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write beside ``path``, which takes its place at the end: nobody ever sees half of it, and what was there
    before is kept if it fails.

    Raises:
        CommandError: It can't be written.
    """
    real = Path(os.path.realpath(path))
    fresh = real if real.exists() and not real.is_file() else real.with_name(f".{os.getpid()}.{real.name}")
    try:
        yield fresh
        if fresh != real:
            fresh.replace(real)
    except OSError as err:
        raise CommandError(f"{path} cannot be written: {err.strerror or err}; name another file") from err
    finally:
        if fresh != real:
            fresh.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a result to a file.

    Raises:
        CommandError: It can't be written.
    """
    with whole(path) as fresh:
        fresh.write_text(text, encoding="utf-8")
