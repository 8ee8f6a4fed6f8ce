"""Python as a service wants it that answers many at once: no pause that anybody would notice."""

from __future__ import annotations

import gc
import sys
from typing import Final

# The loop gives the interpreter away at each read and write. While a thread computes, a snapshot say, it gets it back
# after so long; with the usual 5 ms, ten times for each request, a queue grows that takes a second to be worked off.
SWITCH_S: Final = 0.0005
# A search for cycles in all that lives takes 100 ms with 6,000 workloads, and by default comes with every quarter that is
# added; it finds next to nothing. So it is made after about 20 million objects more: once an hour in a busy lab. The young,
# among which all cycles of requests and exceptions are, are searched as soon as ever.
THRESHOLDS: Final = (2_000, 10, 1_000)


def prepare() -> None:
    """For the process of a service, for good."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*THRESHOLDS)
