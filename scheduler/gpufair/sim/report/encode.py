"""Numbers and texts, small: differences of neighbours as 32-bit integers, their bytes sorted by place, deflated.

``page/decode.js`` is the other half.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence

_PLACES = 4  # bytes of a number


def column(values: Iterable[int]) -> dict[str, object]:
    """A column of numbers whose neighbours differ by less than 2**31.

    Raises:
        OverflowError: Two of them differ by more.
    """
    numbers = list(values)
    steps = array("i", (here - before for before, here in zip([0, *numbers], numbers, strict=False)))
    if sys.byteorder == "big":
        steps.byteswap()
    plain = steps.tobytes()
    return {"n": len(numbers), "z": _deflated(b"".join(plain[place::_PLACES] for place in range(_PLACES)))}


def texts(values: Sequence[str]) -> dict[str, object]:
    """A column of texts, each at most 120 characters long: longer ones are cut, with an ellipsis."""
    return {"t": _deflated(json.dumps([short(value) for value in values], ensure_ascii=False).encode(errors="replace"))}


def short(text: str, most: int = 120) -> str:
    """A text that people gave, cut where it is too long to be read in a card."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _deflated(plain: bytes) -> str:
    return b64encode(zlib.compress(plain, 9)).decode("ascii")
