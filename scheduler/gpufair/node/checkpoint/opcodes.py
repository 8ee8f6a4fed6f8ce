"""Which objects of a pickle stream later ones refer to. Needed only when one of them could not be rebuilt."""

from __future__ import annotations

import pickletools
from dataclasses import dataclass

_MEMOIZE, _BINGET, _LONG_BINGET, _FRAME = 0x94, 0x68, 0x6A, 0x95
_COUNTED = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4}
_COUNTED |= {pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}


def _widths() -> tuple[list[int], list[int]]:
    """For each opcode the bytes of its argument, or else the bytes of the length that precedes it; -1: no opcode."""
    fixed, counted = [-1] * 256, [0] * 256
    for op in pickletools.opcodes:
        code = op.code.encode("latin-1")[0]
        width = 0 if op.arg is None else op.arg.n
        if width == pickletools.UP_TO_NEWLINE:
            continue  # text opcodes; protocol 5 writes none
        fixed[code] = max(width, 0)
        counted[code] = _COUNTED.get(width, 0)
    return fixed, counted


_FIXED, _LENGTH = _widths()


@dataclass(frozen=True, slots=True)
class Use:
    """Memo entries of one pickle: ``made`` new ones, and the numbers of those it reads."""

    made: int
    read: frozenset[int]


def memo_use(data: memoryview) -> Use:
    """The memo entries that one protocol 5 pickle makes and reads.

    Raises:
        ValueError: ``data`` is no such pickle.
    """
    at, made, end, read = 0, 0, len(data), set[int]()
    while at < end:
        code = data[at]
        at += 1
        width = _FIXED[code]
        if width < 0:
            raise ValueError(f"unexpected opcode {code:#x} at {at - 1}")
        if code == _MEMOIZE:
            made += 1
        elif code == _BINGET:
            read.add(data[at])
        elif code == _LONG_BINGET:
            read.add(int.from_bytes(data[at : at + 4], "little"))
        if length := _LENGTH[code]:
            width = length + int.from_bytes(data[at : at + length], "little")
        at += width
    return Use(made, frozenset(read))
