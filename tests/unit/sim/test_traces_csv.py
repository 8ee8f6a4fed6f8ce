"""Traces in the simulator's own format: what is read, what is refused, and by which words."""

from __future__ import annotations

import gzip
import os
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufair.core.errors import GpufairError
from gpufair.core.model import Outcome
from gpufair.core.units import Millis
from gpufair.sim.traces import (
    BadRow,
    BadRows,
    Options,
    Row,
    TraceError,
    TraceTooLarge,
    UnknownFormat,
    read_trace,
    write_csv,
)

HEADER = "job_id,submit_s,duration_s,gpus,user,project,kind,status"
GOOD = "a,0,60,8,ann,vision,batch,completed"
# Without the time of day, so that the names of the tests are the same in every process.
PACKED = gzip.compress(f"{HEADER}\n{GOOD}".encode(), mtime=0)


def write(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def bad_rows(tmp_path: Path, *lines: str, header: str = HEADER) -> tuple[BadRow, ...]:
    return read_trace(write(tmp_path, "\n".join((header, GOOD, *lines)))).skipped


def test_every_published_field_is_read_and_an_empty_one_stays_unknown(tmp_path):
    text = (
        "gpus,kind,job_id,user,project,status,submit_s,duration_s,nodes,min_runtime_s,priority,resumable,gpu_type,requested_s\n"
        "16,Batch,a,ann,vision,Failed,1.5,60,2,3600,-7,no,a100,7200\n"
        "0.5,,b,,,,0,0.25,,,,,,\n"
    )
    trace = read_trace(write(tmp_path, text))
    assert trace.format == "csv"
    assert trace.epoch_s is None
    assert trace.rows == (
        Row(3, "b", Millis(0), Millis(250), 0.5),
        Row(
            2, "a", Millis(1500), Millis(60_000), 16.0, "ann", "vision", "batch", "failed", 2, Millis(3_600_000), -7,
            False, "a100", Millis(7_200_000),
        ),
    )  # fmt: skip
    assert [row.outcome for row in trace.rows] == [Outcome.COMPLETED, Outcome.FAILED]


def test_a_trace_can_be_handed_to_another_process(tmp_path):
    trace = read_trace(write(tmp_path, f"{HEADER}\n{GOOD}\nx"))
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_jobs_of_one_moment_keep_the_order_of_the_file(tmp_path):
    lines = "\n".join(f"j{index},{second},5,1,,,," for index, second in enumerate((3, 1, 3, 1, 1)))
    assert [row.job_id for row in read_trace(write(tmp_path, f"{HEADER}\n{lines}")).rows] == [
        "j1",
        "j3",
        "j4",
        "j0",
        "j2",
    ]


def test_blank_lines_windows_ends_marks_and_quotes_are_no_matter(tmp_path):
    text = f'\ufeff{HEADER},note\r\n\r\n"a","0",60,8,"ann, the ""first""",,,,x\r\n  \r\nb,1,1,1,,,,,y'
    rows = read_trace(write(tmp_path, text)).rows
    assert [(row.line, row.job_id, row.user) for row in rows] == [(3, "a", 'ann, the "first"'), (5, "b", "")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("b,x,60,8,,,,", "submit_s is 'x': not a number"),
        ("b,,60,8,,,,", "submit_s is empty"),
        ("b,nan,60,8,,,,", "submit_s is 'nan': not a number"),
        ("b,0,inf,8,,,,", "duration_s is 'inf': not a number"),
        ("b,0,1e308,8,,,,", "duration_s is '1e308': too large"),
        ("b,0,1_0,8,,,,", "duration_s is '1_0': not a number"),
        ("b,-1,60,8,,,,", "submit_s is '-1': negative"),
        ("b,0,-60,8,,,,", "duration_s is '-60': negative"),
        ("b,0,1e13,8,,,,", "duration_s is '1e13': too large for seconds"),
        ("b,0,1e10,8,,,,", "the job ran for 10,000,000,000 s: more than ten years"),
        ("b,0,0,8,,,,completed", "duration_s is '0': a job that held its GPUs held them longer"),
        ("b,0,60,0,,,,", "gpus is '0': a job without GPUs takes no part"),
        ("b,0,60,-8,,,,", "gpus is '-8': negative"),
        ("b,0,60,1e9,,,,", "gpus is '1e9': too many"),
        ("b,0,60,,,,,", "gpus is empty"),
        (",0,60,8,,,,", "job_id is empty"),
        ("a,0,60,8,,,,", "job_id is 'a': that is the job of line 2 already"),
        ("b,0,60,8", "it has 4 columns where the header has 8"),
        ("b,0,60,8,,,,,,", "it has 10 columns where the header has 8"),
        ('b,0,60,8,"ann,,,', "a quote is not closed, or there is text beside one"),
        ("b,0,60,8,a\x1b[31m,,,", "user is 'a\\x1b[31m': it holds characters that can't be shown"),
        (f"b,0,60,8,{'x' * 300},,,", "user has 300 characters, more than 256"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(tmp_path, line, reason):
    path = write(tmp_path, f"{HEADER}\n{GOOD}\n{line}\nz,5,5,1,,,,")
    trace = read_trace(path)
    assert trace.skipped == (BadRow(3, reason),)
    assert trace.counts == {"bad": 1}
    assert [row.job_id for row in trace.rows] == ["a", "z"]
    assert trace.notes[-1] == f"t.csv: 1 bad row skipped (line 3: {reason})"
    with pytest.raises(BadRows) as refused:
        read_trace(path, strict=True)
    assert (refused.value.total, refused.value.first) == (1, trace.skipped)
    assert f"1 bad row: line 3: {reason}; mend them" in str(refused.value)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("nodes", "0", "nodes is '0': not between 1 and 1,000,000"),
        ("nodes", "1.5", "nodes is '1.5': not a whole number"),
        ("min_runtime_s", "-1", "min_runtime_s is '-1': negative"),
        ("priority", "high", "priority is 'high': not a number"),
        ("priority", "inf", "priority is 'inf': not a number"),
        ("resumable", "maybe", "resumable is 'maybe': neither true nor false"),
        ("requested_s", "-5", "requested_s is '-5': negative"),
    ],
)
def test_a_bad_optional_value_makes_a_bad_row(tmp_path, column, cell, reason):
    text = f"job_id,submit_s,duration_s,gpus,{column}\na,0,1,1,\nb,0,1,1,{cell}"
    assert read_trace(write(tmp_path, text)).skipped == (BadRow(3, reason),)


def test_all_bad_rows_are_counted_and_the_first_are_kept(tmp_path):
    path = write(tmp_path, "\n".join((HEADER, GOOD, *["x"] * 1000)))
    trace = read_trace(path, options=Options(bad_rows_kept=7))
    assert (len(trace.skipped), trace.counts["bad"]) == (7, 1000)
    with pytest.raises(BadRows, match=r"1,000 bad rows: line 3: .*line 12: .*; and 990 more;"):
        read_trace(path, strict=True)


def test_jobs_that_never_ran_are_no_bad_rows(tmp_path):
    path = write(tmp_path, f"{HEADER}\n{GOOD}\nb,5,0,8,,,,Pending\nc,5,,8,,,,queued")
    trace = read_trace(path, strict=True)
    assert (len(trace.rows), trace.counts) == (1, {"never ran": 2})
    assert "t.csv: beside them 2 never ran" in trace.notes


def test_cancelled_and_failed_jobs_are_kept(tmp_path):
    ends = ("cancelled", "killed", "failed", "timeout", "node_fail", "completed", "running", "unknown")
    path = write(tmp_path, "\n".join((HEADER, *(f"{end},0,60,8,,,,{end}" for end in ends))))
    outcomes = [row.outcome for row in read_trace(path).rows]
    assert outcomes == [Outcome.CANCELLED] * 2 + [Outcome.FAILED] * 3 + [Outcome.COMPLETED] * 3


def test_submissions_in_unix_time_begin_at_the_first(tmp_path):
    trace = read_trace(write(tmp_path, f"{HEADER}\na,1700000060,60,1,,,,\nb,1700000000.5,60,1,,,,"))
    assert [(row.job_id, row.submit) for row in trace.rows] == [("b", 0), ("a", 59_500)]
    assert trace.epoch_s == 1_700_000_000.5


def test_a_kind_of_another_scheduler_is_said_not_guessed(tmp_path):
    trace = read_trace(write(tmp_path, f"{HEADER}\na,0,60,1,,,service,"))
    assert trace.rows[0].kind == ""
    assert "the kinds 'service' are not known here" in trace.notes[-1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (gzip.compress(b""), "it is empty"),
        (b"JobID    JobName\n------- -------\n", "print it with --parsable2"),
        (b"date,total\n1,2", "it begins with 'date,total'; known formats"),
        (b"job_id,submit_s,gpus\na,0,1", "its format is not known"),
        (b"\x00\xff\x13", "its format is not known"),
        (f"{HEADER}\n".encode(), "there is no job that ran on GPUs in it, read as csv (no lines)"),
        (f"{HEADER}\na".encode(), "(1 bad; line 2: it has 1 columns where the header has 8)"),
        (f"{HEADER},user\n{GOOD},x".encode(), "line 1: it has more than one column 'user'"),
        (f"{HEADER}\n{GOOD}\nb,0,60,8,\xff,,,".encode("latin-1"), "line 3: it is not UTF-8 text"),
        (PACKED[:-9], "its gzip data end too soon"),
        (PACKED[:-8] + b"12345678", "its gzip data are damaged"),
        (b"\x1f\x8b\x08\x00garbage", "its gzip data"),
        (b"PK\x03\x04rest", "it is packed with zip; unpack it"),
    ],
)
def test_a_file_that_is_no_trace_says_why(tmp_path, data, said):
    with pytest.raises(TraceError) as refused:
        read_trace(write(tmp_path, data))
    assert said in str(refused.value)
    assert str(tmp_path / "t.csv") in str(refused.value)


def test_a_named_format_lacks_its_columns(tmp_path):
    with pytest.raises(
        TraceError, match="line 1: it has no column duration_s, gpus; its columns are 'job_id', 'submit_s'"
    ):
        read_trace(write(tmp_path, "job_id,submit_s\na,0"), "csv")
    with pytest.raises(UnknownFormat, match="the format 'xls' is not known; known formats: csv"):
        read_trace(write(tmp_path, GOOD), "xls")


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    with pytest.raises(TraceError, match="there is no such file"):
        read_trace(tmp_path / "nothing.csv")
    with pytest.raises(TraceError, match="it is a folder"):
        read_trace(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="it is a pipe or a device; save it as a file first"):
        read_trace(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(max_bytes=5000), "it has more bytes, when unpacked, than 5,000"),
        (Options(max_lines=50), "it has more lines than 50"),
        (Options(max_line_bytes=60), "line 1: it has more bytes in a line than 60"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_limits_hold_and_say_how_they_are_raised(tmp_path, options, said, packed):
    data = "\n".join(
        (HEADER + ",note,more", *(f"j{index},0,60,8,ann,vision,batch,completed,," for index in range(200)))
    )
    path = write(tmp_path, gzip.compress(data.encode()) if packed else data)
    assert len(read_trace(path).rows) == 200
    with pytest.raises(TraceTooLarge) as refused:
        read_trace(path, options=options)
    assert said in str(refused.value)
    assert f"read it with Options({refused.value.option}=…)" in str(refused.value)


def test_a_small_file_that_unpacks_to_a_huge_one_is_noticed_on_the_way(tmp_path):
    bomb = gzip.compress(f"{HEADER}\n{GOOD}\n".encode() + b"\n" * 10_000_000)
    assert len(bomb) < 20_000
    with pytest.raises(TraceTooLarge, match="more lines than 1,000,000"):
        read_trace(write(tmp_path, bomb), options=Options(max_lines=1_000_000))
    endless = gzip.compress(f"{HEADER}\n".encode() + b"x" * 10_000_000)
    with pytest.raises(TraceTooLarge, match="line 2: it has more bytes in a line than 65,536"):
        read_trace(write(tmp_path, endless))


def test_progress_ends_with_all_of_the_file(tmp_path):
    path = write(tmp_path, gzip.compress("\n".join((HEADER, *(f"{i},0,6,8,,,," for i in range(100_000)))).encode()))
    told: list[tuple[int, int]] = []
    read_trace(path, progress=lambda done, size: told.append((done, size)))
    assert told == sorted(told)
    assert len(told) > 1
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


WORDS = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" ,\"'"), max_size=12).map(str.strip)
SPANS = st.integers(1, 10**11).map(Millis)
ROWS = st.builds(
    Row,
    line=st.just(0),
    job_id=WORDS.filter(bool),
    submit=st.integers(0, 9 * 10**11).map(Millis),
    duration=SPANS,
    gpus=st.floats(0.001, 1e6) | st.integers(1, 1024).map(float),
    user=WORDS,
    project=WORDS,
    kind=st.sampled_from(("", "debug", "session", "batch")),
    status=WORDS.map(str.lower),
    nodes=st.none() | st.integers(1, 10**6),
    min_runtime=st.none() | st.just(Millis(0)) | SPANS,
    priority=st.none() | st.integers(-(2**53), 2**53),
    resumable=st.none() | st.booleans(),
    gpu_type=WORDS,
    requested=st.none() | SPANS,
)


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, min_size=1, max_size=8, unique_by=lambda row: row.job_id), st.sampled_from(("t.csv", "t.csv.gz")))
def test_what_was_written_is_read_again(tmp_path, rows, name):
    path = tmp_path / name
    write_csv(rows, path)
    trace = read_trace(path, strict=True)
    expected = sorted((row._replace(line=index) for index, row in enumerate(rows, 2)), key=lambda row: row.submit)
    assert list(trace.rows) == expected
    write_csv(trace, path)
    again = read_trace(path, strict=True)
    assert [row._replace(line=0) for row in again.rows] == [row._replace(line=0) for row in expected]


CELLS = st.text(max_size=6) | st.sampled_from(["0", "1", "nan", "1e999", "-0", "²", "١", "1e-9", '"', "\r", "9" * 400])


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELLS, max_size=16).map(",".join), max_size=6), st.booleans())
def test_no_cells_raise_anything_but_our_errors(tmp_path, lines, strict):
    header = "job_id,submit_s,duration_s,gpus,nodes,min_runtime_s,priority,resumable,kind,status"
    data = "\n".join((header, *lines)).encode(errors="surrogatepass")
    with suppress(GpufairError):
        trace = read_trace(write(tmp_path, data), strict=strict)
        assert all(row.duration > 0 and row.gpus > 0 and row.submit >= 0 for row in trace.rows)


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from((b"", b"\x1f\x8b", f"{HEADER}\n{GOOD}\n".encode())))
def test_no_bytes_raise_anything_but_our_errors(tmp_path, data, start):
    for fmt in ("auto", "csv"):
        with suppress(GpufairError):
            read_trace(write(tmp_path, start + data), fmt)


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(TraceError, match="it cannot be written"):
        write_csv([Row(1, "a", Millis(0), Millis(1), 1.0)], tmp_path / "no" / "t.csv")
