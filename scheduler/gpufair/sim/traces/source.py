"""A trace's file as bounded lines of text, compressed or not.

Files come from elsewhere: nothing in here believes a size, and a small file that unpacks to a huge one is noticed
while it is unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Final

from gpufair.sim.traces.errors import TraceError, TraceTooLarge
from gpufair.sim.traces.options import Options

Progress = Callable[[int, int], None]
"""Called with the bytes of the file that were read, and all there are."""

BLOCK: Final = 1 << 20
HEAD: Final = 1 << 16
GZIP: Final = b"\x1f\x8b"
SQLITE: Final = b"SQLite format 3\x00"
_PACKED: Final = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
}


class Source:
    """A file to be read once or several times, from its beginning each time.

    Raises (every method):
        TraceError: It is not there, not readable, damaged, packed in a way that is not known, or not UTF-8.
        TraceTooLarge: It exceeds a limit of ``options``.
    """

    def __init__(self, path: Path, options: Options, progress: Progress | None = None) -> None:
        self.path, self.options, self._progress = path, options, progress

    @property
    def name(self) -> str:
        """The name of the file, which is what a trace is called."""
        return self.path.name

    def error(self, problem: str, line: int | None = None) -> TraceError:
        """What is wrong with this file."""
        return TraceError(str(self.path), problem, line)

    def head(self) -> bytes:
        """The first bytes, unpacked: enough to see what it is."""
        with self._opened() as (file, _):
            return file.read(HEAD)

    def is_database(self) -> bool:
        """Whether it is one of SQLite's, packed or not."""
        return self.head().startswith(SQLITE)

    def packed(self) -> bool:
        """Whether it is packed with gzip."""
        with self._opened() as (file, raw):
            return file is not raw

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every line that is not blank, without its end, with its number from 1."""
        number, longest = 0, self.options.max_line_bytes
        for text in self._texts():
            lines = text.split("\n")
            if len(max(lines, key=len)) > longest:
                at = next(index for index, line in enumerate(lines) if len(line) > longest)
                raise self._too_long(number + 1 + at)
            if number + len(lines) > self.options.max_lines:
                raise TraceTooLarge(str(self.path), "it has more lines", self.options.max_lines, "max_lines")
            for number, line in enumerate(lines, number + 1):  # noqa: B020  # goes on from where the last text ended
                if line and not line.isspace():
                    yield number, line.rstrip("\r")

    def pieces(self) -> Iterator[str]:
        """All of it in pieces, whatever its lines are."""
        decoder, line = codecs.getincrementaldecoder("utf-8-sig")(), 1
        for block in self._blocks():
            try:
                yield decoder.decode(block)
            except UnicodeDecodeError as err:
                raise self._no_text(line + block.count(b"\n", 0, err.start)) from None
            line += block.count(b"\n")
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise self._no_text(line) from None

    def _texts(self) -> Iterator[str]:
        """Whole lines, as many as a block holds, without the end of the last one."""
        rest, before = b"", 0
        for block in self._blocks():
            cut = block.rfind(b"\n")
            if cut < 0:
                rest += block
                if len(rest) > max(self.options.max_line_bytes, BLOCK):
                    raise self._too_long(before + 1)
                continue
            yield self._decoded(rest + block[:cut], before)
            before += block.count(b"\n")
            rest = block[cut + 1 :]
        if rest:
            yield self._decoded(rest, before)

    def _decoded(self, data: bytes, before: int) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError as err:
            line = before + 1 + data.count(b"\n", 0, err.start)
            raise self._no_text(line) from None
        return text.removeprefix("\ufeff") if before == 0 else text

    def _no_text(self, line: int) -> TraceError:
        return self.error("it is not UTF-8 text; is it another kind of file?", line)

    def _too_long(self, line: int) -> TraceTooLarge:
        limit = self.options.max_line_bytes
        return TraceTooLarge(str(self.path), "it has more bytes in a line", limit, "max_line_bytes", line)

    def _blocks(self) -> Iterator[bytes]:
        total = 0
        with self._opened() as (file, raw):
            size = self.path.stat().st_size
            while block := file.read(BLOCK):
                total += len(block)
                if total > self.options.max_bytes:
                    limit = self.options.max_bytes
                    raise TraceTooLarge(str(self.path), "it has more bytes, when unpacked,", limit, "max_bytes")
                yield block
                if self._progress is not None:
                    self._progress(raw.tell(), size)

    @contextmanager
    def _opened(self) -> Iterator[tuple[gzip.GzipFile | BufferedReader, BufferedReader]]:
        """The unpacked file, and the file itself."""
        if not self.path.is_file():
            raise self.error(_not_there(self.path))
        try:
            with self.path.open("rb") as raw:
                start = raw.read(8)
                raw.seek(0)
                if not start:
                    raise self.error("it is empty")
                for magic, packer in _PACKED.items():
                    if start.startswith(magic):
                        raise self.error(f"it is packed with {packer}; unpack it (gzip is fine as it is)")
                if start.startswith(GZIP):
                    with gzip.GzipFile(fileobj=raw) as unpacked:
                        yield unpacked, raw
                else:
                    yield raw, raw
        except EOFError:
            raise self.error("its gzip data end too soon: it is cut off; fetch it again") from None
        except (gzip.BadGzipFile, zlib.error) as err:
            raise self.error(f"its gzip data are damaged ({err}); fetch it again") from None
        except OSError as err:
            raise self.error(f"it cannot be read ({err.strerror or err})") from err


def _not_there(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    # A pipe can be read only once, and what a trace is has to be seen first.
    return "it is a pipe or a device; save it as a file first" if path.exists() else "there is no such file"
