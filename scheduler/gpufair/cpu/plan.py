"""What the service tells the process of its pool: a file in the pool's folder, which may change at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpufair.node.files import read_json, write_json

FILE = "plan.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a pool of several users is shared.

    ``shares``: the entitlement of each leaf of the budget tree, as numerator and denominator. ``tasks_per_user`` 0: any
    number at once. Without a service that holds ``service_lock`` for ``linger_s`` the pool ends.
    """

    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    window_s: float = 7 * 86_400.0
    tasks_per_user: int = 0
    service_lock: str = ""
    linger_s: float = 900.0

    def fractions(self) -> dict[str, Fraction]:
        """``shares`` to reckon with."""
        return {leaf: Fraction(*ratio) for leaf, ratio in self.shares.items()}


def write(folder: Path, plan: Plan) -> None:
    """Raises ``OSError``; the old plan is there then."""
    write_json(folder / FILE, asdict(plan), durable=False)


def read(folder: Path) -> Plan | None:
    """None: there is none, or none that can be understood."""
    data: dict[str, Any] | None = read_json(folder / FILE)
    try:
        return None if data is None else Plan(**{**data, "shares": {leaf: (int(a), int(b)) for leaf, (a, b) in data["shares"].items()}})
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
