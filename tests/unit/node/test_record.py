"""What was recorded comes back as a notebook would hold it."""

import json

import pytest

from gpufair.node import record
from gpufair.node.record import Record, executions
from gpufair.node.record_lines import ENDED, TRUNCATED, mark_ended, marker


def message(kind, content, parent="m1", metadata=None, date="2026-11-29T10:00:00+00:00"):
    return {
        "header": {"msg_type": kind, "date": date},
        "parent_header": {"msg_id": parent, "msg_type": "execute_request"},
        "metadata": metadata or {},
        "content": content,
        "buffers": 0,
    }


def stream(text, name="stdout", parent="m1"):
    return message("stream", {"name": name, "text": text}, parent)


def status(state, parent="m1", **more):
    return message("status", {"execution_state": state}, parent, **more)


@pytest.fixture
def recorded(tmp_path):
    """Writes a record and reads it back, whole and as one who has read what was there before."""
    known = Record(tmp_path)

    def write(*messages, file="iopub-1-1.jsonl"):
        with (tmp_path / file).open("ab") as out:
            for one in messages:
                out.write(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n")
        found = executions(tmp_path)
        assert known.executions() == found
        return found

    return write


def outputs(found):
    return [one["outputs"] for one in found]


def test_an_execution_with_its_cell_times_and_merged_streams(recorded):
    (found,) = recorded(
        status("busy"),
        message(
            "execute_input",
            {"code": "f()", "execution_count": 4},
            metadata={"gpufair": {"cell_id": "c1", "code_sha256": "ab"}},
        ),
        stream("a\n"),
        stream("b\n"),
        stream("oops", "stderr"),
        message("execute_result", {"data": {"text/plain": "4"}, "metadata": {}, "execution_count": 4}),
        status("idle", date="2026-11-29T10:00:02+00:00"),
    )
    assert found.pop("ended_s") - found["started_s"] == 2.0
    assert isinstance(found.pop("started_s"), float)
    assert found == {
        "msg_id": "m1",
        "cell_id": "c1",
        "code_sha256": "ab",
        "execution_count": 4,
        "state": "done",
        "status": "ok",
        "again_from": None,
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": "a\nb\n"},
            {"output_type": "stream", "name": "stderr", "text": "oops"},
            {"output_type": "execute_result", "data": {"text/plain": "4"}, "metadata": {}, "execution_count": 4},
        ],
    }


def test_an_error_is_kept_with_its_traceback(recorded):
    (found,) = recorded(
        status("busy"), message("error", {"ename": "E", "evalue": "v", "traceback": ["t"]}), status("idle")
    )
    assert found["status"] == "error"
    assert found["outputs"] == [{"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]}]


def test_output_is_cleared_at_once_or_by_the_next_output(recorded):
    assert outputs(recorded(stream("a"), message("clear_output", {"wait": False}))) == [[]]
    wait = message("clear_output", {"wait": True}, "m2")
    assert outputs(recorded(stream("a", parent="m2"), wait))[1][0]["text"] == "a", "nothing replaced it yet"
    assert outputs(recorded(stream("b", parent="m2")))[1][0]["text"] == "b"


def test_a_display_is_updated_in_the_cell_that_showed_it(recorded):
    transient = {"display_id": "d"}
    found = recorded(
        message("display_data", {"data": {"text/plain": "0 %"}, "metadata": {}, "transient": transient}),
        message("update_display_data", {"data": {"text/plain": "99 %"}, "metadata": {}, "transient": transient}, "m2"),
    )
    assert outputs(found) == [[{"output_type": "display_data", "data": {"text/plain": "99 %"}, "metadata": {}}]]


def test_only_executions_count(recorded):
    other = message("status", {"execution_state": "busy"})
    other["parent_header"]["msg_type"] = "kernel_info_request"
    assert recorded(other) == []


def test_what_ran_when_its_kernel_ended_was_interrupted(recorded, tmp_path):
    assert recorded(status("busy"), stream("1"))[0]["state"] == "running"
    mark_ended(tmp_path, 1, 1)
    (found,) = executions(tmp_path)
    assert (found["state"], found["status"], found["outputs"][0]["text"]) == ("done", "interrupted", "1")


def test_a_newer_kernel_ends_what_ran_in_the_older_even_without_a_mark(recorded):
    recorded(status("busy", "m10"), file="iopub-10-1.jsonl")
    found = recorded(status("busy", "m9"), file="iopub-9-2.jsonl")
    assert [(one["msg_id"], one["state"]) for one in found] == [("m9", "done"), ("m10", "running")], "9 is before 10"


def test_torn_and_foreign_lines_are_passed_over(recorded):
    found = recorded(stream("a"), b'{"header": {"msg_ty\n', b"[1]\n", b"\xff\n", stream("b"))
    assert outputs(found)[0][0]["text"] == "ab"


def test_too_much_output_of_one_cell_is_cut_and_it_says_so(recorded, monkeypatch):
    monkeypatch.setattr(record, "MAX_OUTPUT_BYTES", 1 << 20)
    found = recorded(stream("x" * 600_000), stream("y" * 600_000), stream("z"), stream("tail", "stderr"))
    text, note = outputs(found)[0]
    assert text["text"].startswith("x" * 600_000 + "y" * 400_000)
    assert len(text["text"]) <= 1 << 20
    assert "larger than 1 MiB" in note["text"]
    assert len(outputs(found)[0]) == 2


def test_the_outputs_of_the_oldest_cells_go_first_when_all_is_too_much(recorded, monkeypatch):
    monkeypatch.setattr(record, "MAX_TOTAL_BYTES", 1 << 20)
    found = recorded(*(stream("x" * 400_000, parent=f"m{n}") for n in range(4)))
    texts = [one[0]["text"] for one in outputs(found)]
    assert ["left out" in text for text in texts] == [True, True, False, False]


def test_a_full_record_says_so_in_the_cell_that_filled_it(recorded):
    parent = json.dumps({"msg_id": "m1", "msg_type": "execute_request"}).encode()
    (found,) = recorded(stream("a"), marker(TRUNCATED, {"limit_bytes": 256 << 20}, parent), status("idle"))
    assert "256 MiB" in found["outputs"][1]["text"]
    assert found["state"] == "done"


def test_only_the_newest_executions_are_kept(recorded, monkeypatch):
    monkeypatch.setattr(record, "MAX_EXECUTIONS", 2)
    assert [one["msg_id"] for one in recorded(*(status("busy", f"m{n}") for n in range(4)))] == ["m2", "m3"]


def test_no_record_no_executions(tmp_path):
    assert executions(tmp_path / "nowhere") == []
    mark_ended(tmp_path, 1, 1)
    assert not list(tmp_path.iterdir())
    assert ENDED.encode() in marker(ENDED, {})


def test_it_is_read_on_as_it_grows(tmp_path):
    """A line in the middle of being written, a longer old file, a new kernel and a shorter file: never wrong, never twice."""
    path = tmp_path / "iopub-1-1.jsonl"
    known = Record(tmp_path)
    assert known.executions() == []
    lines = [json.dumps(stream(f"{i}\n")).encode() + b"\n" for i in range(3)]
    whole = b"".join(lines)
    for end in range(1, len(whole), 13):
        path.write_bytes(whole[:end])
        text = "".join(f"{i}\n" for i in range(whole[:end].count(b"\n")))
        assert outputs(known.executions()) == ([[{"output_type": "stream", "name": "stdout", "text": text}]] if text else [])
    second = tmp_path / "iopub-1-2.jsonl"
    second.write_bytes(json.dumps(stream("new", parent="m2")).encode() + b"\n")
    assert [one["status"] for one in known.executions()] == ["interrupted", None]
    path.write_bytes(whole)
    assert known.executions() == executions(tmp_path)
    second.write_bytes(b"")
    assert known.executions() == executions(tmp_path)
    second.unlink()
    assert known.executions() == executions(tmp_path)
