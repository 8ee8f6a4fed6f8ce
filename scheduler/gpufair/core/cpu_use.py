"""What researchers have of CPUs and memory by work without GPUs: now, and within the last hour.

It draws on no budget; this only says whose turn it is (``gpufair.core.cpu_work``). A workload counts as its larger part:
of the CPUs of all nodes, or of their memory, whichever it has more of. Parts are counted in millionths, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpufair.core.ledger import Account, Mark
from gpufair.core.model import Shape, WorkloadSpec
from gpufair.core.record import NodeRecord
from gpufair.core.units import HOUR, AllocationPath, GpuMillis, Instant

# Long enough that whoever runs many short jobs one after the other is known, and short enough that nobody waits for
# longer than that because of what he had yesterday.
SPAN: Final = HOUR
WHOLE: Final = 1_000_000


def part_of(nodes: Iterable[NodeRecord], shape: Shape) -> int:
    """What a workload counts as. What no node counts is nothing."""
    if not shape.counted:
        return 0
    there = [record.node for record in nodes if not record.lost]
    parts = [0]
    for each, whole in (
        (shape.cpus_per_node, sum(node.cpus or 0 for node in there)),
        (shape.memory_per_node, sum(node.memory or 0 for node in there)),
    ):
        if whole:
            parts.append(-(-shape.nodes * each * WHOLE // whole))
    return max(parts)


class CpuUse:
    """An account for each researcher in each leaf, of parts over time."""

    __slots__ = ("accounts",)

    def __init__(self) -> None:
        self.accounts: dict[AllocationPath, dict[str, Account]] = {}

    def charge(self, spec: WorkloadSpec, now: Instant, part: int) -> None:
        """From ``now`` on its owner has so much more (less, if negative)."""
        if part:
            users = self.accounts.setdefault(spec.allocation, {})
            if spec.user not in users:
                users[spec.user] = Account()
            users[spec.user].change(now, part, SPAN)

    def held(self, leaf: AllocationPath, user: str) -> int:
        """What a researcher holds in a leaf now."""
        account = self.accounts.get(leaf, {}).get(user)
        return account.gpus if account is not None else 0

    def had(self, leaf: AllocationPath, user: str, now: Instant) -> int:
        """What he had within the last hour, as part x ms."""
        account = self.accounts.get(leaf, {}).get(user)
        return account.occupancy(now, SPAN) if account is not None else 0

    def all_held(self) -> dict[AllocationPath, int]:
        """What all of each leaf hold now."""
        return {leaf: sum(one.gpus for one in users.values()) for leaf, users in self.accounts.items()}

    def all_had(self, now: Instant) -> dict[AllocationPath, int]:
        """What all of each leaf had within the last hour."""
        return {leaf: sum(one.occupancy(now, SPAN) for one in users.values()) for leaf, users in self.accounts.items()}

    def copy(self) -> CpuUse:
        """An independent copy."""
        twin = CpuUse()
        twin.accounts = {
            leaf: {user: account.copy() for user, account in users.items()} for leaf, users in self.accounts.items()
        }
        return twin

    def write(self) -> dict[str, dict[str, list[list[int]]]]:
        """As plain values."""
        return {
            leaf: {user: [[one.at, one.total, one.gpus] for one in users[user].marks] for user in sorted(users)}
            for leaf, users in sorted(self.accounts.items())
        }

    def read(self, plain: Mapping[str, Mapping[str, Iterable[Sequence[int]]]]) -> None:
        """What ``write`` wrote."""
        for leaf, users in plain.items():
            accounts: dict[str, Account] = {}
            for user, marks in users.items():
                accounts[user] = Account([Mark(Instant(at), GpuMillis(total), part) for at, total, part in marks])
            self.accounts[AllocationPath(leaf)] = accounts
