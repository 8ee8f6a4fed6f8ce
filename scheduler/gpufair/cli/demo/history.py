"""The service's journal, read as spans and marks, and added up once more, independently of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufair.cli.demo.timeline import Mark, Span

# Events after which a workload's GPUs are free again.
FREEING = frozenset({"Released", "Exited", "StartFailed"})


@dataclass(slots=True)
class Stay:
    """One time on the nodes, from the grant to the moment its GPUs were free. Instants are milliseconds."""

    workload: str
    leases: list[tuple[str, int]]
    granted_ms: int
    protected_until_ms: int
    restored: bool
    started_ms: int | None = None
    noticed_ms: int | None = None  # told to stop, for whatever reason
    preempted_ms: int | None = None  # told to make room
    freed_ms: int | None = None

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return sum(gpus for _, gpus in self.leases)


@dataclass(slots=True)
class History:
    """All stays, in the order of their grants."""

    stays: list[Stay] = field(default_factory=list)

    @classmethod
    def read(cls, records: Iterable[Mapping[str, Any]]) -> History:
        """From the answer of ``GET /timeline``."""
        self = cls()
        now: dict[str, Stay] = {}
        for record in records:
            at, kind, workload = round(record["at_s"] * 1000), record["kind"], record.get("workload")
            if kind == "Start" and workload is not None:
                held = record["held"]
                leases = [(lease["node"], lease["gpus"]) for lease in held["leases"]]
                stay = Stay(
                    workload, leases, held["granted_at"], held["protected_until"], record["checkpoint"] is not None
                )
                now[workload] = stay
                self.stays.append(stay)
            elif workload in now:
                stay = now[workload]
                if kind == "Started":
                    stay.started_ms = stay.started_ms or at
                elif kind in ("BeginCheckpoint", "Stop"):
                    stay.noticed_ms = stay.noticed_ms or at
                    if kind == "BeginCheckpoint":
                        stay.preempted_ms = at
                elif kind in FREEING:
                    stay.freed_ms = at
                    del now[workload]
        return self

    def of(self, workload: str) -> list[Stay]:
        """The stays of one workload."""
        return [stay for stay in self.stays if stay.workload == workload]

    def held_gpu_ms(self, workload: str, until_ms: int) -> int:
        """GPU-milliseconds that ``workload`` held until ``until_ms``, added up from the journal alone."""
        return sum(stay.gpus * ((stay.freed_ms or until_ms) - stay.granted_ms) for stay in self.of(workload))

    def protected_preemptions(self) -> int:
        """Preemptions before a protection was over."""
        return sum(stay.preempted_ms is not None and stay.preempted_ms < stay.protected_until_ms for stay in self.stays)

    def spans(self, names: Mapping[str, str], teams: Mapping[str, str], until_ms: int) -> list[Span]:
        """For the picture: a span for each phase of each stay on each node."""
        found = []
        for stay in self.stays:
            end = stay.freed_ms or until_ms
            notice = min(stay.noticed_ms or end, end)
            up = min(stay.started_ms or notice, notice)
            first = "restoring" if stay.restored else "starting"
            last = "stopping" if stay.preempted_ms is None else "checkpointing"
            edges = [(first, stay.granted_ms, up), ("running", up, notice), (last, notice, end)]
            for node, _ in stay.leases:
                for phase, begin, finish in edges:
                    if finish > begin:
                        found.append(Span(node, names[stay.workload], teams[stay.workload], phase,
                                          begin / 1000, finish / 1000, stay.protected_until_ms / 1000))  # fmt: skip
        return found

    def marks(self, records: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> list[Mark]:
        """What happened, in sentences for people."""
        found = []
        for record in records:
            text = _sentence(record, names)
            if text:
                found.append(Mark(record["at_s"], text))
        return found


def _sentence(record: Mapping[str, Any], names: Mapping[str, str]) -> str:
    who = names.get(record.get("workload") or "", "")
    match record["kind"]:
        case "Submitted":
            return f"{who} asks for GPUs"
        case "Amended":
            return f"{who} asks for something else instead"
        case "Start":
            where = ", ".join(f"{lease['gpus']} GPU on {lease['node']}" for lease in record["held"]["leases"])
            return f"{who} gets {where}" + (" and is restored there" if record["checkpoint"] else "")
        case "Started":
            return f"{who} is up"
        case "BeginCheckpoint":
            heir = names.get(record["beneficiary"] or "", "")
            return f"{who} is told to save" + (f" and make room for {heir}" if heir else "")
        case "CheckpointDone":
            saved = record["checkpoint"]
            return f"{who} is saved: {saved['size_bytes']:,} bytes in {saved['duration'] / 1000:.2f} s"
        case "Released" | "Exited":
            return f"{who} has given its GPUs back"
        case "Park":
            return f"{who} is parked; its notebook stays open"
        case "ResumeRequested":
            return f"{who} is touched: a cell is waiting, it queues again"
    return ""
