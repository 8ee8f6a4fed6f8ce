"""The whole state as a versioned plain dict, and back; recovery and replay of a journal.

``recover`` applies what was decided and decides nothing: it is what a restarted service does. ``replay`` decides anew
and compares: it is how a change of the code, or a suspicion, is tested against what really happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gpufair.core.actions import Action
from gpufair.core.codec import MalformedRecord, Plain, decode, encode
from gpufair.core.errors import GpufairError
from gpufair.core.events import Event
from gpufair.core.facts import Facts
from gpufair.core.model import Allocation, Drain, Maintenance, Node, Policy
from gpufair.core.record import NodeRecord, Record
from gpufair.core.saved_ledger import (
    count_switching,
    open_demand,
    open_researchers,
    read_demand,
    read_ledger,
    write_demand,
    write_ledger,
)
from gpufair.core.state import State
from gpufair.core.tree import Tree
from gpufair.core.units import Instant, PoolName
from gpufair.core.weights import Weights

VERSION: Final = 1
_BREATH: Final = 16  # workloads: about 1 ms

T = TypeVar("T")
Journal = Iterable[tuple[Event, Iterable[Action]]]


def snapshot(state: State, breathe: Callable[[], object] | None = None) -> Plain:
    """The state as JSON-able values. Two states that would decide alike for ever have equal snapshots.

    ``breathe`` is called now and then, so that a thread which writes a large one can let others of its process work.
    """
    facts = state.facts
    workloads: list[Plain] = []
    for workload in sorted(facts.records):
        if breathe is not None and len(workloads) % _BREATH == 0:
            breathe()
        workloads.append(encode(facts.records[workload]))
    return {
        "version": VERSION,
        "now": facts.now,
        "policy": encode(facts.policy),
        "unit": facts.weights.unit,
        "allocations": [encode(allocation) for allocation in facts.tree.allocations],
        "nodes": [
            {
                "node": encode(node.node),
                "cordoned": node.cordoned,
                "lost": node.lost,
                "drain": encode(node.drain) if node.drain is not None else None,
            }
            for node in facts.nodes.values()
        ],
        "workloads": workloads,
        "ledgers": {pool: write_ledger(ledger) for pool, ledger in facts.ledgers.items()},
        "wishes": write_demand(facts.demand),
        "cpu_use": facts.cpu_use.write(),
        "reservations": facts.reservations,
        "landings": facts.landings,
        "maintenance": [encode(plan) for plan in facts.maintenance.values()],
        "protected_preemptions": facts.protected_preemptions,
        "idle_releases": facts.idle_releases,
        "moves": {"forced": facts.forced_moves, "allowed": facts.allowed_moves},
        "consolidation_moves": facts.consolidation_moves,
    }


def restore(plain: Mapping[str, Any], validate: bool = False) -> State:
    """The state that ``snapshot`` wrote.

    One of before there were accounts of researchers, or of before demand was kept, can be read too. All researchers of a
    leaf are then equals at that moment, whatever they had had before, and demand and capacity count from there on.

    Raises:
        MalformedRecord: It was written by another version, or is not a snapshot.
    """
    if plain.get("version") != VERSION:
        raise MalformedRecord("snapshot", f"its version is {plain.get('version')!r}, not {VERSION}")
    try:
        facts = _facts(plain)
    except (KeyError, TypeError, ValueError) as err:
        raise MalformedRecord("snapshot", f"is damaged ({err!r})") from err
    return State.of(facts, validate)


def _facts(plain: Mapping[str, Any]) -> Facts:
    facts = Facts(_read(plain["policy"], Policy))
    facts.now = Instant(plain["now"])
    facts.weights = Weights(facts.policy.gpu_weights, int(plain.get("unit", 1)))
    facts.tree = Tree(_read(each, Allocation) for each in plain["allocations"])
    facts.demand = read_demand(plain.get("wishes", ()))
    facts.cpu_use.read(plain.get("cpu_use", {}))
    for each in plain["workloads"]:
        record = _read(each, Record)
        if "rate" not in each and record.held is not None and record.spec.allocated:
            record.rate = sum(lease.gpus for lease in record.held.leases)  # there were no weights then
        facts.list_workload(record)
    for each in plain["nodes"]:
        drain = _read(each["drain"], Drain) if each.get("drain") is not None else None
        node = NodeRecord(_read(each["node"], Node), bool(each["cordoned"]), bool(each["lost"]), drain)
        facts.nodes[node.node.name] = node
    for workload in sorted(facts.holding):
        held = facts.holding[workload].held
        for lease in held.leases if held is not None else ():
            facts.nodes[lease.node].holders[workload] = lease.gpus
    for record in sorted(facts.reserved.values(), key=lambda one: one.reservation.order if one.reservation else 0):
        for lease in record.reservation.leases if record.reservation is not None else ():
            facts.nodes[lease.node].claims[record.id] = lease.gpus
    for record in facts.records.values():
        for lease in record.landing.leases if record.landing is not None else ():
            facts.nodes[lease.node].landings[record.id] = lease.gpus
    for pool, each in plain["ledgers"].items():
        facts.ledgers[PoolName(pool)] = read_ledger(each, facts.now)
    for plan in (_read(each, Maintenance) for each in plain.get("maintenance", ())):
        facts.maintenance[plan.id] = plan
        for name in plan.nodes:
            facts.nodes[name].closes_at = min(plan.at, facts.nodes[name].closes_at or plan.at)
    facts.list_nodes()
    count_switching(facts)
    facts.reservations = int(plain["reservations"])
    facts.landings = int(plain.get("landings", 0))  # there were none in older ones
    facts.protected_preemptions = int(plain["protected_preemptions"])
    facts.idle_releases = int(plain.get("idle_releases", 0))
    moves = plain.get("moves", {"forced": 0, "allowed": 0})
    facts.forced_moves, facts.allowed_moves = int(moves["forced"]), int(moves["allowed"])
    facts.consolidation_moves = int(plain.get("consolidation_moves", 0))
    open_researchers(facts, {PoolName(pool) for pool, each in plain["ledgers"].items() if "researchers" not in each})
    if "wishes" not in plain:
        open_demand(facts)
    return facts


def _read(plain: Mapping[str, object], kind: type[T]) -> T:
    value = decode(plain)
    if not isinstance(value, kind):
        raise MalformedRecord(kind.__name__, f"expected, but found a {type(value).__name__}")
    return value


def recover(journal: Journal, start: Mapping[str, Any] | None = None, policy: Policy = Policy()) -> State:
    """The state after a journal, from a snapshot or from nothing. Decides nothing.

    Args:
        journal: Each event with the actions decided when it came.
        start: The snapshot that the journal continues.
        policy: The options at the beginning, where there is no snapshot.
    """
    state = restore(start) if start is not None else State(policy)
    for event, actions in journal:
        state.recover(event, actions)
    return state


@dataclass(frozen=True, slots=True)
class Difference:
    """An event about which this version of the core decides otherwise than was recorded."""

    index: int
    event: Event
    recorded: tuple[Action, ...]
    decided: tuple[Action, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of deciding a journal anew: the state, and every difference."""

    state: State
    events: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether every decision was the recorded one."""
        return not self.differences


def replay(journal: Journal, start: Mapping[str, Any] | None = None, policy: Policy = Policy()) -> Replay:
    """Decide a journal anew and compare.

    After a difference the recorded actions are applied, so that each difference stands for itself.
    """
    state = restore(start) if start is not None else State(policy)
    trial = state.copy()
    differences: list[Difference] = []
    count = 0
    for index, (event, actions) in enumerate(journal):
        count += 1
        recorded = tuple(actions)
        try:
            decided, error = tuple(trial.handle(event)), ""
        except GpufairError as err:
            decided, error = (), f"{type(err).__name__}: {err}"
        state.recover(event, recorded)
        if decided != recorded or error:
            differences.append(Difference(index, event, recorded, decided, error))
            trial = state.copy()
    return Replay(state, count, tuple(differences))
