"""Traces of other schedulers and of published data sets: tiny files of each format, made up here."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufair.core.errors import GpufairError
from gpufair.core.model import Outcome
from gpufair.core.units import HOUR, Millis
from gpufair.sim.traces import FORMATS, BadRow, BadRows, Options, Row, TraceError, UnknownFormat, read_trace
from gpufair.sim.traces.fields import Wrong, elapsed

S = 1000


def write(tmp_path: Path, text: str, name: str = "t") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


# -- Slurm ------------------------------------------------------------------------------------------------------------

SACCT = """\
JobID|Submit|Start|End|Elapsed|State|AllocTRES|ReqTRES|User|Account|NNodes|Partition|Priority|Timelimit
7|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-03T13:09:05|2-03:04:05|COMPLETED|billing=16,cpu=64,gres/gpu=16,gres/gpu:a100=16,mem=1T,node=2||ann|vision|2|gpu|4294|3-00:00:00
7.batch|2026-03-01T10:05:00|2026-03-01T10:05:00|2026-03-03T13:09:05|2-03:04:05|COMPLETED|cpu=64,gres/gpu=16||||2|||
7.0|2026-03-01T10:05:00|2026-03-01T10:05:00|2026-03-03T13:09:05|2-03:04:05|COMPLETED|cpu=64,gres/gpu=16||||2|||
8_4|2026-03-01T10:00:10|2026-03-01T10:00:11|2026-03-01T10:10:11|00:10:00|CANCELLED by 1000|cpu=1,gres/gpu:v100=1,node=1||bob|speech|1|gpu||UNLIMITED
8_[5-9%2]|2026-03-01T10:00:10|Unknown|Unknown|00:00:00|PENDING||cpu=1,gres/gpu=1|bob|speech|1|gpu|1|UNLIMITED
9+0|2026-03-01T09:59:00|2026-03-01T10:00:00|2026-03-01T10:00:30|00:30|FAILED|gres/gpu:a100=8,gres/gpu:h100=4||cy|speech|2|gpu|1|Partition_Limit
9+1|2026-03-01T09:59:00|2026-03-01T10:00:00|2026-03-01T10:00:30|00:30|FAILED|cpu=4||cy|speech|1|cpu|1|1:00
10|2026-03-01T10:01:00|None|2026-03-01T10:02:00|00:00:00|CANCELLED by 5|||cy|speech|1|gpu|1|01:00:00
11|2026-03-01T11:00:00|2026-03-01T11:00:00|Unknown|01:00:00|RUNNING|gres/gpu=2||cy||1|gpu|1|01:00:00
"""


def test_sacct_gives_a_row_for_each_job_that_ran_on_gpus(tmp_path):
    trace = read_trace(write(tmp_path, SACCT), strict=True)
    assert trace.format == "sacct"
    assert trace.epoch_s == 1772359140  # 2026-03-01T09:59:00Z
    assert trace.counts == {"job steps": 2, "never ran": 2, "without GPUs": 1}
    assert trace.rows == (
        Row(7, "9+0", Millis(0), Millis(30 * S), 12.0, "cy", "speech", status="failed", nodes=2),
        Row(
            2, "7", Millis(60 * S), Millis(((2 * 24 + 3) * 3600 + 4 * 60 + 5) * S), 16.0, "ann", "vision",
            status="completed", nodes=2, gpu_type="a100", requested=Millis(72 * HOUR),
        ),
        Row(
            5, "8_4", Millis(70 * S), Millis(600 * S), 1.0, "bob", "speech",
            status="cancelled", nodes=1, gpu_type="v100",
        ),
        Row(
            10, "11", Millis(3660 * S), Millis(3600 * S), 2.0, "cy", "",
            status="running", nodes=1, requested=Millis(HOUR),
        ),
    )  # fmt: skip
    assert [row.outcome for row in trace.rows[:3]] == [Outcome.FAILED, Outcome.COMPLETED, Outcome.CANCELLED]


def test_sacct_may_end_its_lines_with_bars_and_leave_out_the_header(tmp_path):
    lines = [
        "1|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T10:06:00|00:01:00|TIMEOUT|gres/gpu=4|ann|vision|1|gpu|5|10",
        "2|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T10:06:00|00:01:00|TIMEOUT|gres/gpu=4|ann|vision|1|gpu|5|10:00",
    ]
    plain = read_trace(write(tmp_path, "\n".join(lines)))
    barred = read_trace(write(tmp_path, "\n".join(f"{line}|" for line in lines), "t.gz"))
    assert plain.skipped == (BadRow(1, "Timelimit is '10': not a span like 2-03:04:05"),)
    assert plain.rows == barred.rows
    assert plain.rows[0]._replace(line=0) == Row(
        0, "2", Millis(0), Millis(60 * S), 4.0, "ann", "vision",
        status="timeout", nodes=1, requested=Millis(600 * S),
    )  # fmt: skip


def test_sacct_without_a_header_may_have_other_fields(tmp_path):
    path = write(
        tmp_path,
        "5|1700000000|300|gpu:a100:4,craynetwork:1|CANCELLED+\n6|1700000001|5|gpu:2(S:0-1)|COMPLETED\n"
        "7|1700000002|5|gpu:h100:3(IDX:0,2-3),gres/gpuutil=7|COMPLETED\n",
    )
    trace = read_trace(
        path, "sacct", options=Options(sacct_fields=("JobIDRaw", "Submit", "ElapsedRaw", "AllocGRES", "State"))
    )
    assert trace.epoch_s == 1_700_000_000
    assert trace.rows == (
        Row(1, "5", Millis(0), Millis(300 * S), 4.0, status="cancelled", gpu_type="a100"),
        Row(2, "6", Millis(S), Millis(5 * S), 2.0, status="completed"),
        Row(3, "7", Millis(2 * S), Millis(5 * S), 3.0, status="completed", gpu_type="h100"),
    )


def test_of_the_runs_of_one_job_the_last_one_counts(tmp_path):
    line = "3|{submit}|{start}|{end}|gres/gpu=8|{state}\n"
    text = "JobID|Submit|Start|End|AllocTRES|State\n" + "".join(
        line.format(
            submit=f"2026-03-01T1{hour - 1}:30:00",
            start=f"2026-03-01T1{hour}:00:00",
            end=f"2026-03-01T1{hour}:{minutes}:00",
            state=state,
        )
        for hour, minutes, state in ((1, 10, "PREEMPTED"), (2, 20, "NODE_FAIL"), (3, 30, "COMPLETED"))
    )
    trace = read_trace(write(tmp_path, text), strict=True)
    assert trace.rows == (Row(4, "3", Millis(0), Millis(1800 * S), 8.0, status="completed"),)
    assert trace.epoch_s == 1772361000  # 2026-03-01T10:30:00Z, the first submission
    assert trace.counts == {"earlier runs of the same job": 2}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("1|yesterday|2026-03-01T10:00:00|00:01:00|gres/gpu=1|", "Submit is 'yesterday': not a date with a time"),
        ("1|Unknown|2026-03-01T10:00:00|00:01:00|gres/gpu=1|", "Submit is 'Unknown': not a date with a time"),
        (
            "1|1960-01-01T00:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=1|",
            "Submit is '1960-01-01T00:00:00': before 1970",
        ),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|1h|gres/gpu=1|", "Elapsed is '1h': not a span like 2-03:04:05"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|25:61:00|gres/gpu=1|", "Elapsed is '25:61:00': not a span like 2-03:04:05"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:00:75|gres/gpu=1|", "Elapsed is '00:00:75': not a span like 2-03:04:05"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|1-25:00:00|gres/gpu=1|", "Elapsed is '1-25:00:00': not a span like 2-03:04:05"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|cpu=2,gres/gpu:a100:2=x|", "'gres/gpu:a100:2=x' names no number of GPUs"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=2x|", "'gres/gpu=2x' names no number of GPUs"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=|", "'gres/gpu=' names no number of GPUs"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gpu:a100|", "'gpu:a100' names no number of GPUs"),
        ("1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gpu|", "'gpu' names no number of GPUs"),
        (
            "1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=99999999|",
            "'gres/gpu=99999999' names too many GPUs",
        ),
        (
            "1|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=1|x|y",
            "it has 7 columns where the header has 6",
        ),
        ("|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=1|", "JobID is empty"),
    ],
)
def test_a_bad_line_of_sacct_is_named(tmp_path, cells, reason):
    good = "0|2026-03-01T10:00:00|2026-03-01T10:00:00|00:01:00|gres/gpu=1|COMPLETED"
    path = write(tmp_path, f"JobID|Submit|Start|Elapsed|AllocTRES|State\n{good}\n{cells}\n")
    assert read_trace(path).skipped == (BadRow(3, reason),)
    with pytest.raises(BadRows, match="1 bad row: line 3"):
        read_trace(path, strict=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:01", 1), ("10:00", 600), ("01:02:03", 3723), ("2-03:04:05", 183845), ("1-0", 86400), ("00:00:01.250", 1.25)],
)
def test_spans_as_slurm_writes_them(text, seconds):
    assert elapsed(text, "Elapsed") == round(seconds * 1000)


@pytest.mark.parametrize("text", ["", "5", "1:2:3:4", "-1:00", "1-", "٣:٠٠", "1:0x"])
def test_other_spans_are_refused(text):
    with pytest.raises(Wrong, match="not a span"):
        elapsed(text, "Elapsed")


def test_sacct_without_what_is_needed_says_what(tmp_path):
    with pytest.raises(
        TraceError, match="no column elapsed or elapsedraw or end, alloctres or reqtres or allocgres; its"
    ):
        read_trace(write(tmp_path, "JobID|Submit|State\n1|2026-03-01T10:00:00|COMPLETED"))


# -- Standard Workload Format -----------------------------------------------------------------------------------------

SWF = """\
; Version: 2.2
; MaxProcs: 128
; UnixStartTime: 1000000000
;
  1   0   5 100 16 -1 -1 16 3600 -1 1 3 7 -1 1 1 -1 -1
  2  10  -1  -1 -1 -1 -1 16 3600 -1 5 3 7 -1 1 1 -1 -1
  3  20   0  60 -1 -1 -1  8   -1 -1 0 -1 -1 -1 1 1 -1 -1
  4  30   0  60 -1 -1 -1 -1   -1 -1 1 4 7 -1 1 1 -1 -1
  5  40   0   0  8 -1 -1  8   -1 -1 1 4 7 -1 1 1 -1 -1
  6  50   0  -1  8 -1 -1  8   -1 -1 1 4 7 -1 1 1 -1 -1
  1   0   5  40 16 -1 -1 16 3600 -1 2 3 7 -1 1 1 -1 -1
  7  70   0 2.5  4 -1 -1  4    9 -1 5 4 7 -1 1 1 -1 -1
"""


@pytest.mark.parametrize("name", ["t.swf", "t.swf.gz"])
def test_swf_counts_processors_as_gpus_or_so_many_as_one(tmp_path, name):
    trace = read_trace(write(tmp_path, SWF, name), strict=True, options=Options(processors_per_gpu=8))
    assert (trace.format, trace.epoch_s) == ("swf", 1e9)
    assert trace.counts == {
        "never ran": 2,
        "parts of jobs that are listed as a whole": 1,
        "without GPUs": 1,
        "without a known run time": 1,
    }
    assert trace.rows == (
        Row(5, "1", Millis(0), Millis(100 * S), 2.0, "3", "7", status="completed", requested=Millis(HOUR)),
        Row(7, "3", Millis(20 * S), Millis(60 * S), 1.0, status="failed"),
        Row(12, "7", Millis(70 * S), Millis(2500), 0.5, "4", "7", status="cancelled", requested=Millis(9 * S)),
    )
    assert f"{name}: 8 processors count as a GPU; the machine had '128' processors" in trace.notes
    assert [row.gpus for row in read_trace(write(tmp_path, SWF, name)).rows] == [16.0, 8.0, 4.0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0 5 100", "it has 4 values; this format has 18"),
        ("9 0 5 -7 16 -1 -1 16 -1 -1 1 3 7 -1 1 1 -1 -1", "run time (4) is '-7': negative"),
        ("9 -1 5 7 16 -1 -1 16 -1 -1 1 3 7 -1 1 1 -1 -1", "submit time (2) is '-1': negative"),
        ("1 0 5 7 16 -1 -1 16 -1 -1 1 3 7 -1 1 1 -1 -1", "job_id is '1': that is the job of line 5 already"),
    ],
)
def test_a_bad_line_of_swf_is_named(tmp_path, line, reason):
    assert read_trace(write(tmp_path, SWF + line)).skipped == (BadRow(13, reason),)


def test_a_fraction_of_nothing_is_refused(tmp_path):
    with pytest.raises(TraceError, match="processors_per_gpu is 0; give a number above 0"):
        read_trace(write(tmp_path, SWF), options=Options(processors_per_gpu=0))


# -- Philly -----------------------------------------------------------------------------------------------------------


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{index}", "gpus": [f"gpu{each}" for each in range(count)]} for index, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly(job: str, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"status": "Pass", "vc": "v1", "jobid": job, "submitted_time": "2017-10-07 01:00:00", "user": "u1"}
    return told | {"attempts": list(attempts)} | more


PHILLY = [
    philly(
        "a",
        attempt("2017-10-07 01:10:00", "2017-10-07 01:11:00", 8),
        attempt("2017-10-07 01:12:00", "2017-10-07 01:22:00", 8, 8),
    ),
    philly("b", attempt("2017-10-07 02:00:00", "None", 1), status="Killed", submitted_time="2017-10-07 00:59:00"),
    philly("c"),
    philly("d", attempt("2017-10-07 02:00:00", "2017-10-07 02:00:00", 1)),
    philly("e", attempt("2017-10-07 02:00:00", "2017-10-07 02:01:00")),
    philly(
        "f",
        attempt(None, None, 2),
        attempt("2017-10-07 02:00:00", "2017-10-07 02:01:00", 2),
        status="Failed",
        user=None,
    ),
]


@pytest.mark.parametrize("indent", [None, 1])
def test_philly_keeps_the_gpu_time_of_all_attempts(tmp_path, indent):
    trace = read_trace(write(tmp_path, json.dumps(PHILLY, indent=indent)), strict=True)
    assert (trace.format, trace.epoch_s) == ("philly", 1507338000)
    first, last = trace.rows
    lines = (1, 1) if indent is None else (2, first.line + 100)
    assert first == Row(lines[0], "a", Millis(0), Millis((600 + 60 // 2) * S), 16.0, "u1", "v1", status="pass", nodes=2)
    assert last._replace(line=0) == Row(0, "f", Millis(0), Millis(60 * S), 2.0, "", "v1", status="failed", nodes=1)
    assert (last.line > 50) is (indent is not None)
    assert trace.counts == {"never ran": 3, "without a known run time": 1}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (philly(""), "it has no jobid"),
        (
            philly("z", attempt("2017-10-07 02:00:00", "2017-10-07 01:00:00", 1)),
            "before it starts at 2017-10-07 02:00:00",
        ),
        (philly("z", attempt("soon", "2017-10-07 01:00:00", 1)), "start_time is 'soon': not a date with a time"),
        (philly("z", {"start_time": 5}), "start_time is '5': not a text"),
        ({"jobid": "z", "attempts": "none"}, "attempts is 'none': not a list"),
        ({"jobid": "z", "attempts": [1]}, "an attempt is not an object"),
        ({"jobid": "z", "attempts": [{"detail": [1]}]}, "the detail of an attempt is not a list of objects"),
        (PHILLY[0], "job_id is 'a': that is the job of line 1 already"),
    ],
)
def test_a_bad_job_of_philly_is_named(tmp_path, job, reason):
    (bad,) = read_trace(write(tmp_path, json.dumps([PHILLY[0], job]))).skipped
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"jobid": "a", "attempts": []', "line 1: its JSON is broken (Expecting ',' delimiter)"),
        ('[\n{"jobid": "a", "attempts": []},', "line 2: its JSON breaks off: the list is not closed"),
        ('["jobid"]', "it holds '\"' where a JSON object should begin"),
        ('[{"jobid": ' + "[" * 100_000, "its JSON is broken"),
        ('[{"jobid": ' + "9" * 5000 + "}]", "it is nested too deeply or has an endless number"),
    ],
)
def test_broken_json_says_where(tmp_path, text, said):
    with pytest.raises(TraceError) as refused:
        read_trace(write(tmp_path, text))
    assert said in str(refused.value)


def test_json_is_read_piece_by_piece(tmp_path):
    """A job may lie across the pieces in which a file is read."""
    jobs = [philly(f"j{index}", *PHILLY[0]["attempts"], note="ü" * (index % 7)) for index in range(4000)]
    trace = read_trace(write(tmp_path, json.dumps(jobs, ensure_ascii=False)))
    assert [row.job_id for row in trace.rows] == [f"j{index}" for index in range(4000)]


# -- Helios and others with dates -------------------------------------------------------------------------------------

HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,train,8,32,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,600,60
2,u2,vcA,prep,0,16,1,COMPLETED,2020-06-09 18:41:02,2020-06-09 18:42:01,2020-06-09 18:52:01,600,59
3,u2,vcB,x,16,64,2,CANCELLED,2020-06-09 18:41:00,,2020-06-09 18:50:00,0,540
4,u2,vcB,x,16,64,2,NODE_FAIL,2020-06-09 18:42:01,2020-06-09 18:42:01,2020-06-09 18:42:31,30,0
"""


def test_helios_gives_its_virtual_clusters_as_projects(tmp_path):
    trace = read_trace(write(tmp_path, HELIOS), strict=True)
    assert (trace.format, trace.epoch_s) == ("helios", 1591728061)
    assert trace.counts == {"never ran": 1, "without GPUs": 1}
    assert trace.rows == (
        Row(2, "1", Millis(0), Millis(600 * S), 8.0, "u1", "vcA", status="completed", nodes=1),
        Row(5, "4", Millis(60 * S), Millis(30 * S), 16.0, "u2", "vcB", status="node_fail", nodes=2),
    )
    assert trace.rows[1].outcome is Outcome.FAILED


def test_a_philly_table_is_read_by_the_names_of_its_columns(tmp_path):
    text = (
        "jobid,vc,user,status,submitted_time,start_time,end_time,num_gpus\n"
        "a,v1,u1,Pass,2017-10-07 01:00:00,2017-10-07 01:10:00,2017-10-07 01:11:00,4\n"
        "b,v1,u1,Killed,2017-10-07 01:00:00,None,None,4\n"
        "c,v1,u1,Killed,2017-10-07 01:00:00,2017-10-07 01:10:00,None,4\n"
        "d,v1,u1,Killed,2017-10-07 01:00:00,2017-10-07 01:10:00,2017-10-07 01:09:00,4\n"
        "e,v1,u1,Killed,,2017-10-07 01:10:00,2017-10-07 01:19:00,4\n"
    )
    trace = read_trace(write(tmp_path, text))
    assert read_trace(write(tmp_path, text), "philly").rows == trace.rows
    assert trace.rows == (Row(2, "a", Millis(0), Millis(60 * S), 4.0, "u1", "v1", status="pass"),)
    assert trace.counts == {"bad": 2, "never ran": 1, "without a known run time": 1}
    assert trace.skipped == (
        BadRow(5, "end_time '2017-10-07 01:09:00' is before start_time '2017-10-07 01:10:00'"),
        BadRow(6, "the time of submission is '': not a date with a time"),
    )


# -- Alibaba ----------------------------------------------------------------------------------------------------------

TASKS = """\
j1,ps,2.0,Terminated,1000.0,1500.0,600.0,29.3,,
j1,worker,4.0,Terminated,1010.0,1500.0,600.0,29.3,50.0,V100
j1,chief,1.0,Terminated,1005.0,1400.0,600.0,29.3,100.0,V100
j2,tensorflow,1.0,Waiting,,,600.0,29.3,100.0,
j3,tensorflow,1.0,Running,2000.0,,600.0,29.3,100.0,T4
j4,ps,1.0,Terminated,2000.0,2100.0,600.0,29.3,,
j5,worker,1.0,Failed,3000.0,3001.5,600.0,29.3,25.0,T4
j5,evaluator,1.0,Terminated,3000.0,3001.0,600.0,29.3,25.0,MISC
"""
JOBS = "j1,i1,ann,Terminated,900.0,1500.0\nj5,i5,bob,Failed,2990.0,3001.5\nj6,i6,bob,Failed,x,\n"
TASK_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
JOB_HEADER = "job_name,inst_id,user,status,start_time,end_time\n"


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_pai_joins_tasks_to_jobs(tmp_path, header, end):
    path = write(tmp_path, (TASK_HEADER if header else "") + TASKS, f"pai_task_table.csv{end}")
    write(tmp_path, (JOB_HEADER if header else "") + JOBS, "pai_job_table.csv")
    trace = read_trace(path, strict=True)
    assert trace.format == "pai"
    assert trace.epoch_s is None  # dates that were shifted are none
    assert trace.counts == {"never ran": 1, "without GPUs": 1, "without a known run time": 1}
    line = 1 + header
    assert trace.rows == (
        Row(line, "j1", Millis(0), Millis(495 * S), 3.0, "ann", status="terminated", gpu_type="V100"),
        Row(line + 6, "j5", Millis(2090 * S), Millis(1500), 0.5, "bob", status="failed"),
    )
    assert trace.rows[0].outcome is Outcome.COMPLETED
    assert (
        f"{path.name}: pai_job_table.csv: 1 lines of the job table make no sense, the first is line {3 + header}"
        in trace.notes
    )


def test_pai_without_a_job_table_says_what_is_missing(tmp_path):
    trace = read_trace(write(tmp_path, TASKS, "tasks.csv"))
    assert [(row.user, row.submit, row.status) for row in trace.rows] == [
        ("", 0, "terminated"),
        ("", 1995 * S, "failed"),
    ]
    assert "users are not known" in trace.notes[-1]
    elsewhere = write(tmp_path, JOBS, "elsewhere.csv")
    trace = read_trace(tmp_path / "tasks.csv", options=Options(pai_jobs=elsewhere))
    assert [row.user for row in trace.rows] == ["ann", "bob"]


def test_pai_s_job_table_alone_says_which_file_is_meant(tmp_path):
    with pytest.raises(TraceError, match="name the task table"):
        read_trace(write(tmp_path, JOBS, "pai_job_table.csv"))


def test_a_bad_task_of_pai_is_named(tmp_path):
    path = write(tmp_path, TASKS + "j7,w,-1,Failed,1,2,,,100,\nj8,w,1,Failed,9,2,,,100,\nj9,w,1,Failed,9,x,,,100,\n")
    assert read_trace(path).skipped == (
        BadRow(9, "inst_num is '-1' with a plan_gpu of '100': not a number of GPUs"),
        BadRow(10, "end_time '2' is before start_time '9'"),
        BadRow(11, "end_time is 'x': not a number"),
    )


OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,50,160,60
p1,6000,12288,1,460,V100M16|V100M32,BE,Failed,10,30,10
p2,6000,12288,8,1000,T4,Burstable,Succeeded,40,100,40.5
p3,6000,12288,0,0,,LS,Succeeded,40,100,40
p4,6000,12288,1,500,,LS,Pending,40,100,
p5,6000,12288,1,2000,,LS,Failed,40,100,40
p6,6000,12288,1,500,,LS,Failed,40,39,40
"""


def test_openb_keeps_fractions_of_a_gpu(tmp_path):
    trace = read_trace(write(tmp_path, OPENB))
    assert trace.format == "openb"
    assert trace.rows == (
        Row(3, "p1", Millis(0), Millis(20 * S), 0.46, status="failed", nodes=1),
        Row(4, "p2", Millis(30 * S), Millis(59_500), 8.0, status="succeeded", nodes=1, gpu_type="T4"),
        Row(2, "p0", Millis(40 * S), Millis(100 * S), 1.0, status="running", nodes=1),
    )
    assert trace.counts == {"bad": 2, "never ran": 1, "without GPUs": 1}
    assert trace.skipped == (
        BadRow(7, "gpu_milli is '2000': not a part of a GPU"),
        BadRow(8, "deletion_time '39' is before scheduled_time '40'"),
    )


# -- All of them ------------------------------------------------------------------------------------------------------


def test_an_unknown_format_lists_those_that_are_known(tmp_path):
    with pytest.raises(UnknownFormat) as refused:
        read_trace(write(tmp_path, "date,vcA,vcB,total\n2020-04-01,112,0,112\n"))
    assert all(f"{name} (" in str(refused.value) for name in FORMATS)


def test_an_archive_of_files_is_to_be_unpacked(tmp_path):
    archive = b"pai_task_table.csv".ljust(257, b"\0") + b"ustar\0" + b"\0" * 300
    (tmp_path / "t.tar.gz").write_bytes(gzip.compress(archive))
    with pytest.raises(TraceError, match="it is an archive of files; unpack it"):
        read_trace(tmp_path / "t.tar.gz")


SAMPLES = (SACCT, SWF, json.dumps(PHILLY), json.dumps(PHILLY, indent=1), HELIOS, TASKS, TASK_HEADER + TASKS, OPENB)
PIECES = st.sampled_from(("|", ",", "\n", '"', "{", "}", "[", "-1", "9" * 20, "nan", "None", "\x00", "é", "1e400", " "))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(SAMPLES),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), PIECES | st.text(max_size=4)), max_size=4),
    st.sampled_from(("auto", *FORMATS)),
    st.booleans(),
)
def test_no_damage_raises_anything_but_our_errors(tmp_path, text, cuts, fmt, strict):
    for place, length, piece in cuts:
        at = int(place * len(text))
        text = text[:at] + piece + text[at + length :]
    path = tmp_path / "t"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with suppress(GpufairError):
        trace = read_trace(path, fmt, strict=strict)
        assert all(row.duration > 0 and row.gpus > 0 and row.submit >= 0 and row.job_id for row in trace.rows)
        assert len({row.job_id for row in trace.rows}) == len(trace.rows)
        assert not strict or not trace.skipped
