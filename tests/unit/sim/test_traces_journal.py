"""The service's own journal as a trace: what workloads really had, in each form in which the journal can be had."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufair.core import events as ev
from gpufair.core.actions import GrantLanding
from gpufair.core.codec import encode
from gpufair.core.errors import GpufairError
from gpufair.core.model import DEFAULT_POOL, Allocation, Kind, Node, Outcome, Policy, Shape
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.service.archives.archive import open_archive, write_export
from gpufair.service.storage.codec import dump_actions, dump_event
from gpufair.service.storage.store import NewEntry, Store
from gpufair.service.storage.timeline import records, without_names
from gpufair.sim.traces import BadRow, Options, Row, Trace, TraceError, TraceTooLarge, read_trace
from tests.world import CAUSE, FULL, LANDINGS, PROMPT, Audit, World

EPOCH = 1_700_000_000_000


def story(policy: Policy = FULL) -> World:
    """Runs that end, one that is preempted and resumes, one cut by a lost node, one cancelled in the queue."""
    world = World(policy)
    world.feed(ev.TimePassed(Instant(EPOCH), CAUSE))
    leaves = [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"), members=("ann",))]
    world.set_up(leaves, [Node(NodeName("n1"), 2), Node(NodeName("n2"), 2)])
    world.submit("long", "a", gpus=2, nodes=2, min_runtime=4_000, priority=3)
    world.advance(3_000)
    world.submit("short", "b", gpus=2, min_runtime=3_000, expected=6_000, user="ann", kind=Kind.SESSION)
    world.submit("dropped", "b", gpus=2, nodes=2, user="ann")
    world.submit("plain", "a", gpus=1, min_runtime=0, resumable=False)
    world.advance(500)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("dropped")))
    world.advance(20_000)
    world.feed(ev.NodeLost(world.now, CAUSE, NodeName("n1")))
    world.advance(3_000)
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n1"), 2)))
    world.advance(10_000)
    if world.where("long"):
        world.exit("long", Outcome.FAILED)
    world.advance(5_000)
    return world


def in_a_database(world: World, path: Path) -> Path:
    store = Store(f"sqlite:///{path}", "test")
    store.append(
        [NewEntry(each.event.at, dump_event(each.event), dump_actions(each.actions), "p") for each in world.journal]
    )
    store.close()
    return path


def as_timeline(path: Path) -> list[dict]:
    store = Store(f"sqlite:///{path}", "test")
    found = records(store.entries())
    store.close()
    return found


def expected_runs(world: World) -> Counter[str]:
    """How long each workload was up, from the audit's account of who held what."""
    runs: dict[tuple[str, int], int] = {}
    for stay in Audit.of(world.journal).stays:
        ran = max(0, stay.end - stay.start - PROMPT.start)
        # A gang that lost a node is no longer up, though it holds the others for a moment.
        runs[stay.workload, stay.incarnation] = min(ran, runs.get((stay.workload, stay.incarnation), ran))
    total: Counter[str] = Counter()
    for (workload, _), ran in runs.items():
        total[workload] += ran
    return +total


def test_a_journal_gives_what_workloads_really_had(tmp_path):
    world = story()
    trace = read_trace(in_a_database(world, tmp_path / "journal.sqlite"), strict=True)
    assert trace.format == "journal"
    assert trace.epoch_s == EPOCH / 1000
    assert {row.job_id: row.duration for row in trace.rows} == expected_runs(world)
    assert trace.counts == {"never ran": 1}
    rows = {row.job_id: row for row in trace.rows}
    assert rows["long"]._replace(duration=Millis(0)) == Row(
        rows["long"].line, "long", Millis(0), Millis(0), 4.0, "u", "a", "batch", "failed", 2,
        min_runtime=Millis(4_000), priority=3, resumable=True,
    )  # fmt: skip
    assert (rows["short"].kind, rows["short"].status) == ("session", "completed")
    assert (rows["short"].user, rows["short"].requested) == ("ann", 6_000)
    assert (rows["plain"].status, rows["plain"].min_runtime, rows["plain"].resumable) == ("running", 0, False)
    starts = Counter(action.workload for _, action in world.actions() if type(action).__name__ == "Start")
    assert max(starts.values()) > 1, "the story has nobody who ran twice"


def test_what_is_decided_about_the_future_is_not_taken_for_the_present(tmp_path):
    world = story(LANDINGS)
    last = max(each.event.at for each in world.journal)
    coming = [action.at for _, action in world.actions() if isinstance(action, GrantLanding)]
    assert max(coming) > EPOCH
    trace = read_trace(in_a_database(world, tmp_path / "journal.sqlite"), strict=True)
    assert {row.job_id: row.duration for row in trace.rows} == expected_runs(world)
    # Cut just behind a landing that lies ahead: who runs then has not run until then.
    cut = next(
        at for at, each in enumerate(world.journal) if any(isinstance(one, GrantLanding) for one in each.actions)
    )
    world.journal = world.journal[: cut + 1]
    now = world.journal[-1].event.at
    assert now < last
    trace = read_trace(in_a_database(world, tmp_path / "cut.sqlite"), strict=True)
    assert {row.job_id: row.duration for row in trace.rows} == expected_runs(world)


def test_a_live_journal_is_read_beside_its_writer_and_a_copy_leaves_no_files(tmp_path):
    world = story()
    store = Store(f"sqlite:///{tmp_path / 'journal.sqlite'}", "test")
    entries = [
        NewEntry(each.event.at, dump_event(each.event), dump_actions(each.actions), "p") for each in world.journal
    ]
    store.append(entries[:-1])
    assert (tmp_path / "journal.sqlite-wal").exists()
    assert read_trace(tmp_path / "journal.sqlite").rows
    store.append(entries[-1:])
    store.close()
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "journal.sqlite").write_bytes((tmp_path / "journal.sqlite").read_bytes())
    assert same(read_trace(folder), read_trace(tmp_path))
    assert [path.name for path in folder.iterdir()] == ["journal.sqlite"]


def same(one: Trace, other: Trace) -> bool:
    return [row._replace(line=0) for row in one.rows] == [row._replace(line=0) for row in other.rows]


def test_database_timeline_lines_and_export_say_the_same(tmp_path):
    path = in_a_database(story(), tmp_path / "journal.sqlite")
    timeline = as_timeline(path)
    trace = read_trace(path)
    whole, lines, masked = tmp_path / "timeline.json", tmp_path / "timeline.jsonl", tmp_path / "masked.json"
    export = tmp_path / "export.json"
    with export.open("w") as out, open_archive(path) as archive:
        write_export((kept.entry for kept in archive.entries()), out)
    whole.write_text(json.dumps({"records": timeline}))
    lines.write_text("\n".join(json.dumps(record) for record in timeline))
    masked.write_text(json.dumps({"records": [without_names(record) for record in timeline]}))
    for other in (whole, lines, masked, export):
        assert same(read_trace(other, strict=True), trace)
        assert [row.line for row in read_trace(other).rows] == [row.line for row in trace.rows]


def test_bare_events_are_enough_where_devices_name_the_nodes(tmp_path):
    spec = encode(next(each.event for each in story().journal if isinstance(each.event, ev.Submitted)))["spec"]
    lost = Instant(EPOCH + 9_000)
    one, two = WorkloadId("one"), WorkloadId("two")
    events = [
        ev.Started(Instant(EPOCH + 1_000), CAUSE, one, 1, ((NodeName("n1"), "0"),)),
        ev.Started(Instant(EPOCH + 2_000), CAUSE, two, 1, ((NodeName("n2"), "0"),)),
        ev.NodeLost(lost, CAUSE, NodeName("n1")),
        ev.Exited(Instant(EPOCH + 10_000), CAUSE, two, 1, Outcome.COMPLETED),
        ev.Released(Instant(EPOCH + 11_000), CAUSE, one, 1),  # late: nothing of it runs any more
        ev.Exited(Instant(EPOCH + 12_000), CAUSE, WorkloadId("stranger"), 1, Outcome.COMPLETED),
    ]
    submissions = [
        {"type": "Submitted", "at": EPOCH, "cause": "c", "workload": name, "spec": spec} for name in (one, two)
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, [*submissions, *map(encode, events)])))
    trace = read_trace(path, strict=True)
    assert {row.job_id: row.duration for row in trace.rows} == {"one": 8_000, "two": 8_000}
    assert trace.counts == {"submitted before the journal begins": 1}


def test_what_was_amended_before_it_ran_is_what_is_read(tmp_path):
    """Its GPUs, who pays and its protection as it ran; who amended what was submitted before is a stranger."""
    spec = encode(next(each.event for each in story().journal if isinstance(each.event, ev.Submitted)))["spec"]
    one, wish = WorkloadId("one"), (AllocationPath("other"), Shape(3), Millis(7_000), (DEFAULT_POOL,), 2)
    events = [
        ev.Amended(Instant(EPOCH + 500), CAUSE, one, *wish),
        ev.Amended(Instant(EPOCH + 600), CAUSE, WorkloadId("stranger"), *wish),
        ev.Started(Instant(EPOCH + 1_000), CAUSE, one, 1, ((NodeName("n1"), "0"),)),
        ev.Exited(Instant(EPOCH + 3_000), CAUSE, one, 1, Outcome.COMPLETED),
    ]
    submitted = {"type": "Submitted", "at": EPOCH, "cause": "c", "workload": one, "spec": spec}
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, [submitted, *map(encode, events)])))
    trace = read_trace(path, strict=True)
    (row,) = trace.rows
    assert (row.gpus, row.project, row.min_runtime, row.priority) == (3.0, "other", 7_000, 2)
    assert row.submit == 0, "it keeps its place: the trace begins with its submission"
    assert trace.counts == {"submitted before the journal begins": 1}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"type": 5}, "type is '5': neither an event nor an action"),
        ({"type": "Moved", "at": 1}, "'Moved' is no event and no action that is known here"),
        ({"type": "Submitted", "at": -1}, "at is '-1': not a whole number between 0 and 100,000,000,000,000"),
        ({"type": "event", "kind": "Submitted", "at_s": "x"}, "at_s is 'x': not a time"),
        ({"type": "Submitted", "at": 1, "spec": {}}, "a submission names no workload"),
        ({"type": "Submitted", "at": 1, "workload": "w"}, "spec is 'None': not an object"),
        ({"type": "Submitted", "at": 1, "workload": "w", "spec": {}}, "shape is 'None': not an object"),
        ({"type": "Submitted", "at": 1, "workload": "w", "spec": {"shape": {"nodes": True}}}, "nodes is 'True'"),
        (
            {"type": "Submitted", "at": 1, "workload": "long", "spec": {}},
            "workload 'long' was submitted in entry 1 already",
        ),
        (
            {"type": "Started", "at": 1, "workload": "long", "incarnation": "1"},
            "incarnation is '1': not a whole number",
        ),
    ],
)
def test_a_bad_record_is_named(tmp_path, record, reason):
    spec = encode(next(each.event for each in story().journal if isinstance(each.event, ev.Submitted)))["spec"]
    good = [
        {"type": "Submitted", "at": 1, "cause": "c", "workload": "long", "spec": spec},
        {"type": "Started", "at": 2, "cause": "c", "workload": "long", "incarnation": 1},
        {"type": "Exited", "at": 3, "cause": "c", "workload": "long", "incarnation": 1, "outcome": "completed"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, [*good, record])))
    trace = read_trace(path)
    assert [row.job_id for row in trace.rows] == ["long"]
    (bad,) = trace.skipped
    assert bad.line == 4
    assert bad.reason.startswith(reason)


def test_another_database_and_a_damaged_journal_say_so(tmp_path):
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    with pytest.raises(TraceError, match=r"no journal that can be read \(no such table: journal\)"):
        read_trace(other)
    path = in_a_database(story(), tmp_path / "journal.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE journal SET event = '{' WHERE seq = 3")
        database.commit()
    with pytest.raises(TraceError, match="entry 3 of the journal is damaged"):
        read_trace(path)


def test_a_journal_has_limits_too(tmp_path):
    path = in_a_database(story(), tmp_path / "journal.sqlite")
    with pytest.raises(TraceTooLarge, match=r"more entries than 5; .*max_lines"):
        read_trace(path, options=Options(max_lines=5))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=3), v, max_size=2),
    max_leaves=4,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_records_raise_anything_but_our_errors(tmp_path, data):
    told = [encode(each.event) for each in story_once()][:40]
    for _ in range(data.draw(st.integers(1, 4))):
        record = data.draw(st.sampled_from(told))
        key = data.draw(st.sampled_from(sorted(record)))
        target = record[key] if record[key] and isinstance(record[key], dict) and data.draw(st.booleans()) else record
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(VALUES)
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, told)))
    with suppress(GpufairError):
        trace = read_trace(path, "journal")
        assert all(row.duration > 0 and row.gpus > 0 for row in trace.rows)
        assert all(isinstance(each, BadRow) for each in trace.skipped)


_STORY: list = []


def story_once() -> list:
    if not _STORY:
        _STORY.extend(story().journal)
    return _STORY
