"""Ledgers and demand as plain values and back; and what is done about a snapshot of before they were kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from gpufair.core import demand
from gpufair.core.codec import MalformedRecord, Plain, decode, encode
from gpufair.core.demand import Demand, Place, Turn, Wish
from gpufair.core.facts import Facts
from gpufair.core.fading import Fading
from gpufair.core.hours import BY_THE_HOUR, Hours, Kept
from gpufair.core.ledger import Account, Mark, PoolLedger
from gpufair.core.model import Phase, Shape
from gpufair.core.owed import Owed
from gpufair.core.units import AllocationPath, Instant, Millis, PoolName

_FIRST_TOTALS: Final = {"unallocated", "held", "idle", "unavailable", "capacity"}  # those of the first version


def write_ledger(ledger: PoolLedger) -> Plain:
    """The ledger of a pool. Its rates follow from who holds what."""
    return _fadings(ledger) | {
        "kept": [ledger.kept.step, ledger.kept.span],
        "totals": dict(ledger.totals),
        "capacity": _marks(ledger.capacity),
        "owed": {path: [list(mark) for mark in ledger.owed[path].marks] for path in sorted(ledger.owed)},
        "accounts": {path: _marks(ledger.accounts[path]) for path in sorted(ledger.accounts)},
        "researchers": {
            path: {user: _marks(users[user]) for user in sorted(users)}
            for path, users in sorted(ledger.researchers.items())
        },
        "history": {
            "uses": _all_hours(ledger.hours),
            "capacity": _hours(ledger.capacity.hours),
            "owed": _all_hours({path: owed.hours for path, owed in ledger.owed.items()}),
            "charged": _all_hours({path: account.hours for path, account in ledger.accounts.items()}),
            "researchers": {
                path: _all_hours({user: account.hours for user, account in users.items()})
                for path, users in sorted(ledger.researchers.items())
            },
            "measured": _all_hours(ledger.measured),
            "busy": _all_hours(ledger.busy),
        },
    }


def _fadings(ledger: PoolLedger) -> Plain:
    if ledger.half_life is None:
        return {}
    return {
        "half_life": ledger.half_life,
        "fading": {
            "capacity": _fading(ledger.capacity.fading),
            "owed": {path: _fading(ledger.owed[path].fading) for path in sorted(ledger.owed)},
            "accounts": {path: _fading(ledger.accounts[path].fading) for path in sorted(ledger.accounts)},
            "researchers": {
                path: {user: _fading(users[user].fading) for user in sorted(users)}
                for path, users in sorted(ledger.researchers.items())
            },
        },
    }


def _fading(fading: Fading | None) -> list[int]:
    return [fading.since, fading.at, fading.amount] if fading is not None else []


def _read_fadings(ledger: PoolLedger, plain: Mapping[str, Any]) -> None:
    half_life = ledger.half_life
    if half_life is None:
        return
    ledger.capacity.fading = Fading(half_life, *plain["capacity"])
    for path, owed in ledger.owed.items():
        owed.fading = Fading(half_life, *plain["owed"][path])
    for path, account in ledger.accounts.items():
        account.fading = Fading(half_life, *plain["accounts"][path])
    for path, users in ledger.researchers.items():
        for user, account in users.items():
            account.fading = Fading(half_life, *plain["researchers"][path][user])


def _hours(hours: Hours | None) -> list[object]:
    return [hours.first, list(hours.amounts)] if hours is not None else []


def _all_hours(by_name: Mapping[Any, Hours | None]) -> dict[str, list[object]]:
    return {name: _hours(by_name[name]) for name in sorted(by_name)}


def read_ledger(plain: Mapping[str, Any], now: Instant) -> PoolLedger:
    """What ``write_ledger`` wrote at an instant, or an earlier version of it."""
    kept = Kept(Millis(plain["kept"][0]), Millis(plain["kept"][1])) if "kept" in plain else BY_THE_HOUR
    half_life = plain.get("half_life")
    ledger = PoolLedger(kept, Millis(half_life) if half_life is not None else None)
    totals = {use: int(amount) for use, amount in plain["totals"].items()}
    unknown = totals.keys() - ledger.totals.keys()
    if unknown or not totals.keys() >= _FIRST_TOTALS:
        raise ValueError(f"totals of {sorted(totals)}")
    ledger.totals.update(totals)
    history = plain.get("history", {})
    past = partial(_past, kept)
    ledger.hours.update({use: past(history, "uses", use) for use in ledger.hours})
    ledger.capacity = _account(plain.get("capacity", ()), past(history, "capacity"))
    for path, marks in plain.get("owed", {}).items():
        ledger.owed[AllocationPath(path)] = Owed(
            ((at, total, wanted, limit) for at, total, wanted, limit in marks), past(history, "owed", path)
        )
    for path, marks in plain["accounts"].items():
        ledger.accounts[AllocationPath(path)] = _account(marks, past(history, "charged", path))
    for path, users in plain.get("researchers", {}).items():
        ledger.researchers[AllocationPath(path)] = {
            user: _account(marks, past(history, "researchers", path, user)) for user, marks in users.items()
        }
    for name, by_leaf in (("measured", ledger.measured), ("busy", ledger.busy)):
        by_leaf |= {AllocationPath(path): past(history, name, path) for path in history.get(name, ())}
    _read_fadings(ledger, plain.get("fading", {}))
    if "charged" not in totals:  # a snapshot of before it was totalled apart from the accounts
        ledger.totals["charged"] = sum(account.charged(now) for account in ledger.accounts.values())
    return ledger


def _past(kept: Kept, history: Mapping[str, Any], *names: str) -> Hours:
    """The history of one amount; none, in a snapshot of before there was any."""
    plain: Any = history
    for name in names:
        plain = plain.get(name, {})
    return Hours(kept, int(plain[0]), (int(amount) for amount in plain[1])) if plain else Hours(kept)


def _marks(account: Account) -> list[list[int]]:
    return [[mark.at, mark.total, mark.gpus] for mark in account.marks]


def _account(marks: Iterable[Any], hours: Hours) -> Account:
    return Account((Mark(*mark) for mark in marks), hours)


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
        turns = [
            Turn(Instant(since), None if pool is None else PoolName(pool), *weight)
            for since, pool, *weight in each["turns"]
        ]
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


def count_switching(facts: Facts) -> None:
    """The rate that follows from the phases of who holds GPUs, and not from who holds what."""
    for record in facts.holding.values():
        if record.held is not None and record.phase is not Phase.RUNNING:
            gpus = sum(lease.gpus for lease in record.held.leases)
            facts.ledger(record.held.pool).change(PoolLedger.SWITCHING, gpus)
