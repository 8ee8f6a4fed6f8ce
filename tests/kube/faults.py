"""What goes wrong on the way to the fake API server, on command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

How = Literal["answer", "cut before", "cut after", "delay"]


@dataclass
class Fault:
    """Befalls the next ``left`` requests of this method (or any) whose path matches; ``hits`` have been befallen."""

    how: How
    method: str | None
    path: re.Pattern[str]
    left: int
    status: int = 500
    reason: str | None = None
    message: str = "told to fail by a test"
    retry_after_s: int | None = None
    delay_s: float = 0.0
    hits: int = 0

    def befalls(self, method: str, path: str) -> bool:
        return self.left > 0 and self.method in {None, method} and self.path.search(path) is not None

    def hit(self) -> None:
        self.left -= 1
        self.hits += 1


class Faults:
    """Asked by the server for each request."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []

    def plan(self, fault: Fault) -> Fault:
        self._planned.append(fault)
        return fault

    def clear(self) -> None:
        self._planned.clear()

    def of(self, method: str, path: str) -> list[Fault]:
        """Those that befall this request: any delays, and at most one that ends it."""
        found: list[Fault] = []
        for fault in [*self._planned]:
            ends = fault.how != "delay"
            if fault.befalls(method, path) and not (ends and any(other.how != "delay" for other in found)):
                fault.hit()
                found.append(fault)
                if not fault.left:
                    self._planned.remove(fault)
        return found
