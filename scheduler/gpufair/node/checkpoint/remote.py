"""Checkpoints in any store that fsspec knows (S3 and its like): no locks there, and objects appear whole or not at all.

Writers and sweeps keep out of each other's way by leaving notes. A writer puts its note and then looks for a sweep's; a
sweep puts its note and then looks for writers'. Whoever comes second sees the other (these stores are consistent:
what was put is found), and if both do, the sweep gives way. Notes of the dead count until they are old.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from gpufair.core.errors import GpufairError
from gpufair.node.checkpoint.storage import BUFFERS, MANIFEST, SCHEME

_NOTES = ".notes"
_WRITER, _SWEEP = "writing-", "sweeping-"
_WRITER_S = 24 * 3600.0  # no save takes so long
_SWEEP_S, _SWEEP_COUNTS_S = 300.0, 900.0  # a sweep stops by itself long before its note is taken for a dead one's
_WAIT_S, _POLL_S = 60.0, 0.5
_USUAL = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # what fsspec itself would load
# By default three minutes, in which the cells of a session would wait for a store that is down.
_RETRIES = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1), "base": 2},
}
_REMOVALS = ("rm", "rm_file", "_rm", "_rm_file")


class BadUrl(GpufairError):
    """No checkpoints can be kept at such a URL. The text never repeats what might be a credential."""


def check_url(url: str) -> None:
    """Whether checkpoints may be kept there and the libraries for it are installed. The store itself is not asked.

    Raises: BadUrl
    """
    if SCHEME.match(url) is None:
        raise BadUrl('it is no URL; write "s3://bucket/prefix", or "file:///folder" for a folder')
    try:
        parts = urlsplit(url)
    except ValueError as err:
        raise BadUrl("it is no URL that can be read") from err
    if parts.password is not None or parts.query or parts.fragment:
        raise BadUrl(
            "it may hold no password, '?' or '#'; credentials and endpoints belong into the environment or the "
            "configuration files of the store's library"
        )
    if any(char in url for char in "*[]{}\\") or any(char.isspace() for char in url):
        raise BadUrl("it may hold no spaces, wildcards, brackets or backslashes")
    if {".", ".."} & set(parts.path.split("/")):
        raise BadUrl("it may hold no '.' or '..' as a part of its path")
    if parts.scheme == "file":
        if parts.netloc or not Path(parts.path).is_absolute() or parts.path == "/":
            raise BadUrl('a folder is written with three slashes, like "file:///folder"')
        return
    if parts.scheme in ("memory", "local"):
        raise BadUrl(f'{parts.scheme}:// is not shared by processes, or not safe; "file:///folder" is a folder')
    if not parts.netloc:
        raise BadUrl(f'it names no bucket or host; write "{parts.scheme}://bucket/prefix"')
    _check_library(url, parts.scheme)


def _check_library(url: str, scheme: str) -> None:
    from fsspec import AbstractFileSystem, get_filesystem_class  # noqa: PLC0415 - costs 60 ms
    from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415

    _with_obstore(url)
    try:
        known = get_filesystem_class(scheme)
    except ValueError as err:
        raise BadUrl(f"{scheme}:// is no kind of store that fsspec knows") from err
    except ImportError as err:
        what = "pip install 'jupyter-gpufair[object-stores]'" if scheme in _USUAL else str(err)
        raise BadUrl(f"the library for {scheme}:// is not installed: {what}") from err
    if all(getattr(known, n, None) in _inherited(n, AbstractFileSystem, AsyncFileSystem) for n in _REMOVALS):
        raise BadUrl(f"{scheme}:// can only be read")


def _inherited(name: str, *classes: type) -> list[object]:
    return [getattr(cls, name, None) for cls in classes]


class FsspecStore:
    """A directory of checkpoints behind a URL."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - costs 60 ms

        self._fs: Any
        self._root: str
        self._fs, self._root = url_to_fs(url, **_with_obstore(url))
        self._notes: dict[str, str] = {}
        self._made: set[str] = set()

    def _do(self, name: str, *args: Any, **named: Any) -> Any:
        """Call the file system. Raises: OSError: whatever it raises; each has errors of its own."""
        try:
            return getattr(self._fs, name)(*args, **named)
        except OSError:
            raise
        except Exception as err:
            raise OSError(
                errno.EIO, f"{type(err).__name__}: {str(err).splitlines()[0][:300] if str(err) else ''}"
            ) from err

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _list(self, *parts: str) -> list[dict[str, Any]]:
        self._fs.invalidate_cache(self._path(*parts))  # what is remembered may lack what another process has put
        try:
            found: list[dict[str, Any]] = self._do("ls", self._path(*parts), detail=True)
        except FileNotFoundError:
            return []
        return found

    def ids(self) -> list[str]:
        names = (_last(e["name"]) for e in self._list() if e["type"] == "directory")
        return sorted(name for name in names if name not in (BUFFERS, _NOTES))

    def create(self, checkpoint: str) -> None:
        if self.manifest_size(checkpoint) is not None:
            raise FileExistsError(f"a finished checkpoint {checkpoint!r} is already there")
        self._notes[checkpoint] = self._leave(_WRITER)
        until = time.monotonic() + _WAIT_S
        while self._others(_SWEEP, _SWEEP_COUNTS_S):
            if time.monotonic() >= until:
                self.release(checkpoint)
                raise BlockingIOError(f"old checkpoints were being cleared away for {_WAIT_S:.0f} s")
            time.sleep(_POLL_S)

    def _leave(self, kind: str) -> str:
        note = self._path(_NOTES, f"{kind}{time.time():.0f}-{uuid.uuid4().hex}")
        self._write(note, b"")
        return note

    def _others(self, kind: str, for_s: float) -> bool:
        """Whether there is a note of this kind that is not too old to count."""
        names = (_last(e["name"]) for e in self._list(_NOTES))
        return any(time.time() - _written_s(name) < for_s for name in names if name.startswith(kind))

    def _write(self, path: str, data: bytes) -> None:
        folder = path.rsplit("/", 1)[0]
        if folder not in self._made:
            self._do("makedirs", folder, exist_ok=True)
            self._made.add(folder)
        self._do("pipe_file", path, data)

    def buffers(self) -> dict[str, int]:
        return {_last(e["name"]): int(e["size"]) for e in self._list(BUFFERS) if e["type"] == "file"}

    def put(self, name: str, data: memoryview | bytes) -> None:
        self._write(self._path(BUFFERS, name), bytes(data))

    def publish(self, checkpoint: str, manifest: bytes) -> None:
        if time.time() - _written_s(_last(self._notes[checkpoint])) > _WRITER_S / 2:
            raise TimeoutError("the save took so long that what it wrote may be gone")
        self._write(self._path(checkpoint, MANIFEST), manifest)

    def release(self, checkpoint: str) -> None:
        if (note := self._notes.pop(checkpoint, None)) is not None:
            with suppress(OSError):  # it counts for a day then, and only keeps sweeps away
                self._do("rm_file", note)

    def being_written(self, checkpoint: str) -> bool:
        return self._others(_WRITER, _WRITER_S)

    def manifest_size(self, checkpoint: str) -> int | None:
        self._fs.invalidate_cache(self._path(checkpoint))
        try:
            return int(self._do("info", self._path(checkpoint, MANIFEST))["size"])
        except FileNotFoundError:
            return None

    def manifest(self, checkpoint: str) -> bytes:
        data: bytes = self._do("cat_file", self._path(checkpoint, MANIFEST))
        return data

    def read(self, name: str) -> BinaryIO:
        file: BinaryIO = self._do("open", self._path(BUFFERS, name), "rb", cache_type="none")
        return file

    def remove(self, checkpoint: str) -> None:
        with suppress(FileNotFoundError):
            self._do("rm_file", self._path(checkpoint, MANIFEST))
        with suppress(FileNotFoundError):
            self._do("rm", self._path(checkpoint), recursive=True)
        self._made.discard(self._path(checkpoint))

    def sweep(self, needed: Callable[[], set[str] | None]) -> list[str]:
        if self._others(_WRITER, _WRITER_S) or self._others(_SWEEP, _SWEEP_COUNTS_S):
            return []
        until = time.monotonic() + _SWEEP_S
        note = self._leave(_SWEEP)
        gone: list[str] = []
        try:
            keep = None if self._others(_WRITER, _WRITER_S) else needed()
            if keep is None:
                return []
            for name in sorted(set(self.buffers()) - keep):
                if time.monotonic() >= until:
                    break
                with suppress(FileNotFoundError):
                    self._do("rm_file", self._path(BUFFERS, name))
                gone.append(name)
            for name in (_last(e["name"]) for e in self._list(_NOTES)):
                if time.time() - _written_s(name) > _WRITER_S:
                    with suppress(OSError):
                        self._do("rm_file", self._path(_NOTES, name))
        finally:
            with suppress(OSError):
                self._do("rm_file", note)
        return gone

    def used_bytes(self, *, by_user: bool) -> int:
        folder = self._root.rstrip("/").rsplit("/", 1)[0] if by_user else self._root
        self._fs.invalidate_cache(folder)
        try:
            return int(self._do("du", folder))
        except FileNotFoundError:
            return 0


def _with_obstore(url: str) -> dict[str, Any]:
    """Have s3://, gs:// and az:// served by obstore where that, and not the usual library, is installed.

    Returns: Options for the file system.
    """
    usual = _USUAL.get(url.partition("://")[0])
    if usual is None or find_spec(usual) is not None or find_spec("obstore") is None:
        return {}
    import_module("obstore.fsspec").register(url.partition("://")[0])
    return {"retry_config": _RETRIES}


def _last(path: object) -> str:
    return str(path).rstrip("/").rsplit("/", 1)[-1]


def _written_s(note: str) -> float:
    """Unix seconds at which a note was left; one that cannot be read is as old as time."""
    try:
        return float(note.split("-")[1])
    except (IndexError, ValueError):
        return 0.0
