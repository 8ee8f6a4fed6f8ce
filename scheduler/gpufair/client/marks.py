"""What a field's type does not say, for the schema of the API: keys of a dataclass field's ``metadata``."""

from __future__ import annotations

from typing import Any, Final

SOMETIMES: Final = "sometimes"  # it may be left out; every other field is always answered
ONE_OF: Final = "one_of"  # the words that it may be, where it is not null
PARTS: Final = "parts"  # its objects may lack any of their fields: whoever asks says which he wants


def one_of(*words: str) -> dict[str, Any]:
    """Metadata of a field that is one of these words."""
    return {ONE_OF: words}


def sometimes() -> dict[str, Any]:
    """Metadata of a field that may be left out."""
    return {SOMETIMES: True}


def parts() -> dict[str, Any]:
    """Metadata of a field of objects that may have some of their fields only."""
    return {PARTS: True}
