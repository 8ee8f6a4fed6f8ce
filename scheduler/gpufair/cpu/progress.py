"""A bar under the cell, where IPython shows one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def _nothing(done: int) -> None:
    return None


def bar(total: int) -> Callable[[int], None]:
    """Shows how many of ``total`` are done; outside IPython it shows nothing."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return _nothing
    shown = ipython.display.ProgressBar(total)
    shown.display()

    def show(done: int) -> None:
        if shown.progress != done:
            shown.progress = done

    return show
