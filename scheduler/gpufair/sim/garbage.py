"""Python's search for cycles, as seldom as a long run with next to no cycles wants it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A pass makes some hundred objects that are gone with it, and a story keeps all that it is told: looking at all of it
# after every 700 objects, as is usual, takes a sixth of the time and finds nothing.
EVERY: Final = 100_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search after so many more objects have been made than are gone, and pass over what was there before, which is all
    jobs of the scenario; as before at the end."""
    before, aside = gc.get_threshold(), not gc.get_freeze_count()
    gc.set_threshold(EVERY, *before[1:])
    if aside:
        gc.freeze()
    try:
        yield
    finally:
        if aside:
            gc.unfreeze()
        gc.set_threshold(*before)
