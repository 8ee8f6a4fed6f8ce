"""What the service itself recorded.

That is its ``journal.sqlite``, what ``gpufair db archive`` or ``gpufair replay --export`` wrote, the answer of ``GET /api/v1/timeline``, or events as
JSON Lines.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from gpufair.core.codec import ACTIONS, EVENTS
from gpufair.core.model import Kind, Outcome
from gpufair.core.units import Instant, Millis, since
from gpufair.sim.traces import fields
from gpufair.sim.traces.errors import TraceTooLarge
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.json_items import Item, int_of, items, list_of, object_of, text_of
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

LATEST: Final = int(fields.MOST_SECONDS * 1000)
ENDS: Final = frozenset({"Exited", "Released", "StartFailed"})
AMENDED: Final = ("allocation", "shape", "min_runtime", "pools", "priority")  # what an amendment names of a spec
RUNNING: Final = "running"  # it is still going on where the journal ends
BATCH: Final = 2000  # entries of one read: none holds on to an old state of a live journal for long
_ENTRIES: Final = "SELECT seq, event, actions FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
ARCHIVE: Final = "gpufair-journal-archive"  # what the first line of a file of old entries says
EARLIER: Final = "submitted before the journal begins"


def looks_like_journal(head: str) -> bool:
    """Whether the beginning of a JSON file is one of a journal or a timeline."""
    return (
        '"records"' in head[:40]
        or '"gpufair-journal' in head[:40]
        or '"cause"' in head
        or ('"type"' in head and '"kind"' in head)
    )


@dataclass(slots=True)
class _Life:
    """A workload, and for how long it has been up on its GPUs so far."""

    line: int
    submit: Instant
    spec: Item
    incarnation: int = 0
    nodes: list[str] = field(default_factory=list)  # of the present run
    up_since: Instant | None = None
    ran: Millis = Millis(0)
    ended: str = ""
    withheld: bool = False  # it must not run yet

    def stop(self, at: Instant) -> None:
        """Its GPUs are free."""
        if self.up_since is not None:
            self.ran = Millis(self.ran + max(0, since(at, self.up_since)))
            self.up_since = None


class _Lives:
    """Follows every workload through the records, in order."""

    def __init__(self) -> None:
        self.known: dict[str, _Life] = {}
        self.strangers: dict[str, None] = {}
        self.now = Instant(0)

    def take(self, line: int, record: Item) -> None:
        """One event or action. Raises ``Wrong`` if it makes no sense."""
        kind, action = _kind_of(record)
        at = self.now if action else _at(record)
        self.now = max(self.now, at)
        if kind == "Submitted":
            self._submitted(line, at, record)
        elif kind == "Amended":
            self._amended(record)
        elif kind == "NodeLost":
            node = text_of(record, "node")
            for there in self.known.values():
                if there.up_since is not None and node in there.nodes:
                    there.stop(at)
        elif kind == "ResumeRequested":
            life = self.known.get(text_of(record, "workload"))
            if life is not None and life.withheld:
                life.withheld, life.submit = False, at  # before that it could not have run
        elif kind in ENDS or kind in {"Start", "Started", "Cancelled", "End"}:
            workload = text_of(record, "workload")
            life = self.known.get(workload)
            if life is None:
                self.strangers[workload] = None
            elif action:
                self._decided(life, kind, record)
            else:
                self._happened(life, kind, at, record)

    def _submitted(self, line: int, at: Instant, record: Item) -> None:
        workload = text_of(record, "workload")
        if not workload:
            raise Wrong("a submission names no workload")
        if workload in self.known:
            raise Wrong(f"workload {workload!r} was submitted in entry {self.known[workload].line} already")
        self.known[workload] = _Life(line, at, object_of(record, "spec"), withheld=record.get("withheld") is True)

    def _amended(self, record: Item) -> None:
        """It asks for something else before it runs."""
        workload = text_of(record, "workload")
        life = self.known.get(workload)
        if life is None:
            self.strangers[workload] = None
        else:
            life.spec = life.spec | {key: record[key] for key in AMENDED if key in record}

    @staticmethod
    def _decided(life: _Life, kind: str, record: Item) -> None:
        if kind == "Start":
            leases = list_of(object_of(record, "held"), "leases")
            life.nodes = [text_of(lease, "node") for lease in leases if isinstance(lease, dict)]
        elif kind == "End":
            life.ended = life.ended or text_of(record, "outcome")

    @staticmethod
    def _happened(life: _Life, kind: str, at: Instant, record: Item) -> None:
        if kind == "Cancelled":
            life.ended = Outcome.CANCELLED.value
            return
        incarnation = int_of(record, "incarnation", 0, 2**53)
        if kind == "Started" and incarnation > life.incarnation:
            life.stop(at)
            life.incarnation, life.up_since = incarnation, at
            devices = [pair[0] for pair in list_of(record, "devices") if isinstance(pair, list) and pair]
            life.nodes = [node for node in devices if isinstance(node, str)] or life.nodes
        elif kind in ENDS and incarnation == life.incarnation:  # a late report about an earlier start means nothing
            life.stop(at)
            if kind == "Exited" and record.get("withheld") is not True:  # else it is started again
                life.ended = life.ended or text_of(record, "outcome")


def read_journal(source: Source, *, strict: bool = False) -> Trace:
    """Read a journal: a row for each workload with GPUs, as long as it was up on them in all its runs together.

    Waiting, launching and restoring are left out of that, saving is not. What still runs where the journal ends has
    status "running". ``line`` is the number of the journal's entry where there is one.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    tally, lives = Tally(source, "journal", strict=strict), _Lives()
    for line, record in _records(source):
        try:
            lives.take(line, record)
        except Wrong as wrong:
            tally.bad(line, str(wrong))
    for _ in lives.strangers:
        tally.leave_out(EARLIER)
    tally.take(
        ((life.line, (workload, life)) for workload, life in lives.known.items()),
        lambda _, item: _row_of(*item, lives.now),
    )
    return tally.trace(dated=True)


def _row_of(workload: str, life: _Life, now: Instant) -> Row | str:
    spec, shape = life.spec, object_of(life.spec, "shape")
    nodes = int_of(shape, "nodes", 1, fields.MOST_GPUS)
    gpus = nodes * int_of(shape, "gpus_per_node", 0, fields.MOST_GPUS)
    if not gpus:
        return NO_GPUS
    if gpus > fields.MOST_GPUS:
        raise Wrong(f"the workload has {gpus:,} GPUs: too many")
    running = life.up_since is not None
    life.stop(now)
    if not life.ran:
        return NEVER_RAN
    kind, resumable = text_of(spec, "kind"), spec.get("resumable", True)
    return Row(
        line=life.line,
        job_id=workload,
        submit=Millis(life.submit),
        duration=life.ran,
        gpus=float(gpus),
        user=text_of(spec, "user"),
        project=text_of(spec, "allocation"),
        kind=kind if kind in {each.value for each in Kind} else "",
        status=RUNNING if running else life.ended,
        nodes=nodes,
        min_runtime=Millis(int_of(spec, "min_runtime", 0, LATEST)),
        priority=int_of(spec, "priority", -(2**53), 2**53) if "priority" in spec else None,
        resumable=resumable if isinstance(resumable, bool) else None,
        gpu_type=text_of(shape, "gpu_type"),
        requested=None if spec.get("expected") is None else Millis(int_of(spec, "expected", 0, LATEST)),
    )


def _kind_of(record: Item) -> tuple[str, bool]:
    """The class that a record is one of, and whether it is an action."""
    kind = record.get("kind") if record.get("type") in ("event", "action") else record.get("type")
    if not isinstance(kind, str):
        raise Wrong(f"type is {shown(str(record.get('type')))}: neither an event nor an action")
    if kind not in EVENTS and kind not in ACTIONS:
        raise Wrong(f"{shown(kind)} is no event and no action that is known here")
    return kind, kind in ACTIONS


def _at(event: Item) -> Instant:
    """When it was. (Actions follow their event; an ``at`` of theirs is when something will be.)"""
    if "at" in event:
        return Instant(int_of(event, "at", 0, LATEST))
    at_s = event.get("at_s")
    if not isinstance(at_s, int | float) or isinstance(at_s, bool) or not 0 <= at_s <= fields.MOST_SECONDS:
        raise Wrong(f"at_s is {shown(str(at_s))}: not a time")
    return Instant(round(at_s * 1000))


def _records(source: Source) -> Iterator[tuple[int, Item]]:
    if source.is_database():
        for seq, event, actions in _entries(source):
            yield from _unfolded(seq, _loaded(source, seq, event, dict), _loaded(source, seq, actions, list))
        return
    for line, item in items(source):
        numbered = item.get("seq")
        number = numbered if isinstance(numbered, int) else line
        if item.get("format") == ARCHIVE:
            continue
        event, decided = item.get("event"), item.get("actions")
        if isinstance(event, str):  # one of those that were archived, whose digests are of these texts
            event, decided = _loaded(source, number, event, dict), _loaded(source, number, decided, list)
        if isinstance(event, dict):  # an entry of an exported journal
            yield from _unfolded(number, event, decided if isinstance(decided, list) else [])
        else:
            yield number, item


def _unfolded(seq: int, event: Item, actions: list[Any]) -> Iterator[tuple[int, Item]]:
    yield seq, event
    for action in actions:
        yield seq, action if isinstance(action, dict) else {}


def _entries(source: Source) -> Iterator[tuple[int, object, object]]:
    """The entries of a journal as the service keeps it; it may be in use."""
    path = source.path.absolute()
    if source.packed():
        raise source.error("it is a packed database; unpack it")
    # Opened by a reader alone, SQLite would make files beside a copy.
    alone = not any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm"))
    uri = f"file:{quote(str(path))}?mode=ro{'&immutable=1' if alone else ''}"
    after, count = -1, 0
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as database:
            while rows := database.execute(_ENTRIES, (after, BATCH)).fetchall():
                count += len(rows)
                if count > source.options.max_lines:
                    raise TraceTooLarge(str(path), "it has more entries", source.options.max_lines, "max_lines")
                yield from rows
                after = rows[-1][0]
    except sqlite3.Error as err:
        raise source.error(f"it is a database, but no journal that can be read ({err})") from err


def _loaded(source: Source, seq: int, text: object, kind: type) -> Any:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise source.error(f"entry {seq} of the journal is damaged; restore a backup of it")
    return value
