"""The record never grows without bound, and never lies about what it left out."""

import errno
import json
import os

from gpufair.node.record import executions
from gpufair.node.recorder import RecordFile

PARENT = json.dumps({"msg_id": "m1", "msg_type": "execute_request"}).encode()


def body(kind, **content):
    return [json.dumps({"msg_type": kind}).encode(), PARENT, b"{}", json.dumps(content).encode()]


def test_outputs_stop_at_the_limit_but_state_and_errors_go_on(tmp_path):
    file = RecordFile(tmp_path / "iopub-1-1.jsonl", limit_bytes=10_000)
    for _ in range(100):
        file.append(body("stream", name="stdout", text="x" * 1000))
    file.append(body("error", ename="E", evalue="", traceback=[]))
    file.append(body("status", execution_state="idle"))
    file.close(ended=True)
    assert (tmp_path / "iopub-1-1.jsonl").stat().st_size < 15_000
    (found,) = executions(tmp_path)
    kinds = [output["output_type"] for output in found["outputs"]]
    assert kinds == ["stream", "stream", "error"]
    assert "not recorded" in found["outputs"][1]["text"]
    assert found["state"] == "done"


def test_a_message_spoiled_by_a_full_disk_spoils_no_other(tmp_path, monkeypatch):
    file = RecordFile(tmp_path / "iopub-1-1.jsonl")
    write = os.write
    answers = iter(["whole", "half", "none", "whole"])

    def limited(fd, data):
        match next(answers):
            case "whole":
                return write(fd, data)
            case "half":
                return write(fd, data[: len(data) // 2])
            case _:
                raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", limited)
    for text in "abcd":
        file.append(body("stream", name="stdout", text=text))
    monkeypatch.undo()
    file.close(ended=False)
    assert executions(tmp_path)[0]["outputs"][0]["text"] == "ad"


def test_line_ends_between_tokens_keep_one_message_on_one_line(tmp_path):
    file = RecordFile(tmp_path / "iopub-1-1.jsonl")
    pretty = json.dumps({"name": "stdout", "text": "a\nb"}, indent=1).encode()
    file.append([b'{"msg_type":\n"stream"}', PARENT, b"{}", pretty, b"buffer"])
    file.close(ended=False)
    (text,) = (tmp_path / "iopub-1-1.jsonl").read_text().splitlines()
    assert json.loads(text)["content"]["text"] == "a\nb"
    assert json.loads(text)["buffers"] == 1
