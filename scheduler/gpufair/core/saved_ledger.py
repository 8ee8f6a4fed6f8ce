"""Ledgers and demand as plain values and back; and what is done about a snapshot of before they were kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpufair.core import demand
from gpufair.core.codec import MalformedRecord, Plain, decode, encode
from gpufair.core.demand import Demand, Place, Turn, Wish
from gpufair.core.facts import Facts
from gpufair.core.ledger import Account, Mark, PoolLedger
from gpufair.core.model import Phase, Shape
from gpufair.core.owed import Owed
from gpufair.core.units import AllocationPath, Instant, PoolName


def write_ledger(ledger: PoolLedger) -> Plain:
    """The ledger of a pool. Its rates follow from who holds what."""
    return {
        "totals": dict(ledger.totals),
        "capacity": _marks(ledger.capacity),
        "owed": {path: [list(mark) for mark in ledger.owed[path].marks] for path in sorted(ledger.owed)},
        "accounts": {path: _marks(ledger.accounts[path]) for path in sorted(ledger.accounts)},
        "researchers": {
            path: {user: _marks(users[user]) for user in sorted(users)}
            for path, users in sorted(ledger.researchers.items())
        },
    }


def read_ledger(plain: Mapping[str, Any]) -> PoolLedger:
    """What ``write_ledger`` wrote, or an earlier version of it."""
    ledger = PoolLedger()
    if plain["totals"].keys() != ledger.totals.keys():
        raise ValueError(f"totals of {sorted(plain['totals'])}")
    ledger.totals = {use: int(plain["totals"][use]) for use in ledger.totals}
    ledger.capacity = _account(plain.get("capacity", ()))
    for path, marks in plain.get("owed", {}).items():
        ledger.owed[AllocationPath(path)] = Owed((at, total, wanted, limit) for at, total, wanted, limit in marks)
    for path, marks in plain["accounts"].items():
        ledger.accounts[AllocationPath(path)] = _account(marks)
    for path, users in plain.get("researchers", {}).items():
        ledger.researchers[AllocationPath(path)] = {user: _account(marks) for user, marks in users.items()}
    return ledger


def _marks(account: Account) -> list[list[int]]:
    return [[mark.at, mark.total, mark.gpus] for mark in account.marks]


def _account(marks: Iterable[Any]) -> Account:
    return Account(Mark(*mark) for mark in marks)


def write_demand(wishes: Demand) -> list[Plain]:
    """Where each wish counted when. Who has it follows from who waits."""
    return [
        {
            "shape": encode(wish.shape),
            "pools": list(wish.pools),
            "turns": [list(turn) for turn in place.turns],
            "asked_at": place.asked_at,
        }
        for wish, place in wishes.places.items()
    ]


def read_demand(plain: Iterable[Mapping[str, Any]]) -> Demand:
    """What ``write_demand`` wrote."""
    wishes = Demand()
    for each in plain:
        shape = decode(each["shape"])
        if not isinstance(shape, Shape):
            raise MalformedRecord("Shape", f"expected, but found a {type(shape).__name__}")
        turns = [Turn(Instant(since), None if pool is None else PoolName(pool)) for since, pool in each["turns"]]
        wish = Wish(shape, tuple(PoolName(pool) for pool in each["pools"]))
        wishes.places[wish] = Place(turns, Instant(each["asked_at"]))
    return wishes


def open_researchers(facts: Facts, pools: set[PoolName]) -> None:
    """Of a snapshot without them: all researchers of a leaf are equals at this moment, and are charged from here on."""
    for workload in sorted(facts.holding):
        record = facts.holding[workload]
        if record.rate and record.held is not None and record.held.pool in pools:
            spec, ledger = record.spec, facts.ledgers[record.held.pool]
            ledger.charge_researcher(spec.allocation, spec.user, facts.now, record.rate, facts.policy.window)


def open_demand(facts: Facts) -> None:
    """Of a snapshot without any: capacity and demand count from this moment on."""
    demand.recount(facts)
    for workload in sorted(facts.records):
        record = facts.records[workload]
        if record.rate and record.held is not None:
            demand.want(facts, record.held.pool, record.spec.allocation, record.rate)
        elif record.phase is Phase.QUEUED:
            demand.begin_to_wait(facts, record)
