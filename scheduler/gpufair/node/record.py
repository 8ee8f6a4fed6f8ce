"""Reads what supervisors have recorded: the outputs of each execution, as a notebook holds them (nbformat 4)."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gpufair.node.record_lines import ENDED, TRUNCATED
from gpufair.node.theirs import files_in, read_only

MAX_EXECUTIONS = 5_000  # the newest are kept
MAX_OUTPUT_BYTES = 8 << 20  # of one execution; a notebook with more in one cell cannot be opened comfortably
MAX_TOTAL_BYTES = 64 << 20  # of all executions; the outputs of the oldest go first
MAX_LINE_BYTES = 64 << 20
_FILE = re.compile(r"iopub-(\d+)-(\d+)\.jsonl")
_CUT = "\n[gpufair: what follows was left out, the output of this cell is larger than {} MiB]\n"
_FORGOTTEN = "[gpufair: the outputs of this cell were left out, there were more than {} MiB after it]\n"
_UNRECORDED = "\n[gpufair: what follows was not recorded, the record of this kernel had reached {} MiB]\n"


@dataclass(slots=True)
class _Execution:
    msg_id: str
    cell_id: str | None = None
    code_sha256: str | None = None
    execution_count: int | None = None
    state: str = "running"
    status: str | None = None
    started_s: float | None = None
    ended_s: float | None = None
    again_from: str | None = None  # the checkpoint from which it is to run again
    outputs: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0
    clear_next: bool = False
    cut: bool = False

    def add(self, output: dict[str, Any], size: int) -> bool:
        """Add an output unless there is too much already; False if it was left out."""
        if self.clear_next:
            self.clear()
        if self.cut:
            return False
        if self.size + size > MAX_OUTPUT_BYTES:
            self.cut = True
            if output["output_type"] == "stream":  # a busy kernel puts megabytes of lines into one message
                self._stream(output["name"], output["text"][: MAX_OUTPUT_BYTES - self.size])
                self.size = MAX_OUTPUT_BYTES
            self._stream("stderr", _CUT.format(MAX_OUTPUT_BYTES >> 20))
            return False
        self.size += size
        if output["output_type"] == "stream":
            self._stream(output["name"], output["text"])
        else:
            self.outputs.append(output)
        return True

    def begin_again(self) -> None:
        """It was cut, and runs from its beginning."""
        self.clear()
        self.state, self.status, self.ended_s, self.again_from = "running", None, None, None

    def note(self, text: str) -> None:
        """Tell the reader something, whatever the limits."""
        if self.clear_next:
            self.clear()
        self._stream("stderr", text)

    def clear(self) -> None:
        self.outputs.clear()
        self.size, self.clear_next, self.cut = 0, False, False

    def _stream(self, name: str, text: str) -> None:
        last = self.outputs[-1] if self.outputs else {}
        if last.get("output_type") == "stream" and last["name"] == name:
            # A list, joined at the end: adding to one string for each of a million lines takes quadratic time.
            last["text"].append(text)
        else:
            self.outputs.append({"output_type": "stream", "name": name, "text": [text]})

    def as_dict(self) -> dict[str, Any]:
        outputs = [
            {**output, "text": "".join(output["text"])} if output["output_type"] == "stream" else output
            for output in self.outputs
        ]
        return {
            "msg_id": self.msg_id,
            "cell_id": self.cell_id,
            "code_sha256": self.code_sha256,
            "execution_count": self.execution_count,
            "state": self.state,
            "status": self.status,
            "started_s": self.started_s,
            "ended_s": self.ended_s,
            "again_from": self.again_from,
            "outputs": outputs,
        }


def executions(record_dir: Path) -> list[dict[str, Any]]:
    """All recorded executions of a workload; see ``Record.executions``."""
    return Record(record_dir).executions()


class Record:
    """What was recorded of one workload, read on as it grows. Not for two threads at once."""

    def __init__(self, record_dir: Path) -> None:
        self._dir = record_dir
        self._begin()

    def _begin(self) -> None:
        self._reader = _Reader()
        self._read: dict[Path, int] = {}  # bytes of each file that were taken, in the order of the files

    def executions(self) -> list[dict[str, Any]]:
        """All executions until now, oldest first.

        Each is ``{"msg_id", "cell_id", "code_sha256", "execution_count", "state": "running" | "done", "status": "ok" |
        "error" | "interrupted" | None, "started_s", "ended_s", "again_from", "outputs"}``. "interrupted": its kernel ended
        before it did; it may run again from the checkpoint ``again_from``, and then only its last run is told. Empty if nothing was recorded. Reads files of up to 272 MiB each when first asked, so call it in a thread.
        """
        files = _files(self._dir)
        if not self._goes_on(files):
            self._begin()
        for path, size in files:
            if path not in self._read:
                self._reader.new_kernel()
                self._read[path] = 0
            if size > self._read[path]:
                self._read[path] = self._take(path, self._read[path], last=path == files[-1][0])
        return [execution.as_dict() for execution in self._reader.found.values()]

    def _goes_on(self, files: list[tuple[Path, int]]) -> bool:
        """Whether what was read is how these files begin. Messages count in the order of the files."""
        known = list(self._read.items())
        present = files[: len(known)]
        if not known or len(present) < len(known):
            return not known
        (path, taken), (now, size) = known[-1], present[-1]
        return present[:-1] == known[:-1] and now == path and size >= taken

    def _take(self, path: Path, offset: int, *, last: bool) -> int:
        """Take the whole messages of a file. Torn lines (a full disk, a crash) are passed over."""
        with read_only(path) as file:
            file.seek(offset)
            while text := file.readline(MAX_LINE_BYTES):
                if last and not text.endswith(b"\n") and len(text) < MAX_LINE_BYTES:
                    break  # being written
                offset += len(text)
                if (message := _message(text)) is not None:
                    self._reader.take(message)
        return offset


def _files(record_dir: Path) -> list[tuple[Path, int]]:
    """The files in the order of their kernels, with their sizes."""
    matches = [(match, path) for path in files_in(record_dir) if (match := _FILE.fullmatch(path.name))]
    ordered = sorted((int(match[1]), int(match[2]), path) for match, path in matches)
    return [(path, path.lstat().st_size) for _, _, path in ordered]


def _message(text: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(text)
    except ValueError:
        return None
    parts = ("header", "parent_header", "metadata", "content")
    if not isinstance(message, dict) or not all(isinstance(message.get(part), dict) for part in parts):
        return None
    message["size"] = len(text)
    return message


class _Reader:
    def __init__(self) -> None:
        self.found: OrderedDict[str, _Execution] = OrderedDict()
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self._total = 0
        self._with_outputs: deque[_Execution] = deque()

    def new_kernel(self) -> None:
        """A new file begins: what still ran in the one before ended with its kernel."""
        self._displays.clear()
        for execution in self.found.values():
            if execution.state == "running":
                execution.state, execution.status = "done", "interrupted"

    def take(self, message: dict[str, Any]) -> None:
        kind = str(message["header"].get("msg_type"))
        if kind == ENDED:
            self.new_kernel()
            return
        if kind == "update_display_data":
            self._update(message)
            return
        parent = message["parent_header"]
        if parent.get("msg_type") != "execute_request":
            return
        execution = self._of(str(parent.get("msg_id")))
        before = execution.size
        self._told(execution, kind, message)
        self._total += execution.size - before
        while self._total > MAX_TOTAL_BYTES and self._with_outputs[0] is not execution:
            old = self._with_outputs.popleft()
            self._total -= old.size
            old.clear()
            old.note(_FORGOTTEN.format(MAX_TOTAL_BYTES >> 20))

    def _told(self, execution: _Execution, kind: str, message: dict[str, Any]) -> None:
        content = message["content"]
        match kind:
            case "status":
                self._status(execution, content, message)
            case "execute_input":
                execution.execution_count = _count(content)
                cell = message["metadata"].get("gpufair")
                if isinstance(cell, dict):
                    execution.cell_id, execution.code_sha256 = cell.get("cell_id"), cell.get("code_sha256")
            case "clear_output":
                if content.get("wait"):
                    execution.clear_next = True
                else:
                    execution.clear()
            case "stream" | "display_data" | "execute_result" | "error":
                self._output(execution, kind, message)
            case _ if kind == TRUNCATED:
                execution.note(_UNRECORDED.format(int(content.get("limit_bytes", 0)) >> 20))
            case _:
                pass

    def _of(self, msg_id: str) -> _Execution:
        if msg_id not in self.found:
            self.found[msg_id] = _Execution(msg_id)
            self._with_outputs.append(self.found[msg_id])
            if len(self.found) > MAX_EXECUTIONS:
                self.found.popitem(last=False)
        return self.found[msg_id]

    @staticmethod
    def _status(execution: _Execution, content: dict[str, Any], message: dict[str, Any]) -> None:
        state = content.get("execution_state")
        if state == "busy":
            if execution.status == "interrupted":
                execution.begin_again()
            execution.started_s = _seconds(message["header"].get("date"))
        elif state == "idle":
            execution.state = "done"
            execution.status = execution.status or "ok"
            execution.ended_s = _seconds(message["header"].get("date"))

    def _output(self, execution: _Execution, kind: str, message: dict[str, Any]) -> None:
        content = message["content"]
        if kind == "error":
            execution.status = "error"
        elif kind == "stream" and (checkpoint := _cut(message)) is not None:
            execution.status, execution.again_from = "interrupted", checkpoint
        output = _output(kind, content)
        display = _display_id(content)
        if execution.add(output, message["size"]) and display is not None and kind != "stream":
            self._displays.setdefault(display, []).append(output)

    def _update(self, message: dict[str, Any]) -> None:
        """Change what was shown under this id, in whichever cell."""
        content = message["content"]
        for output in self._displays.get(_display_id(content) or "", []):
            output["data"], output["metadata"] = content.get("data", {}), content.get("metadata", {})


def _output(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """An output as nbformat 4 wants it."""
    if kind == "stream":
        return {"output_type": kind, "name": str(content.get("name", "stdout")), "text": str(content.get("text", ""))}
    if kind == "error":
        names = ("ename", "evalue")
        lines = [str(line) for line in content.get("traceback") or []]
        return {"output_type": kind, **{name: str(content.get(name, "")) for name in names}, "traceback": lines}
    output = {"output_type": kind, "data": content.get("data", {}), "metadata": content.get("metadata", {})}
    if kind == "execute_result":
        output["execution_count"] = _count(content)
    return output


def _cut(message: dict[str, Any]) -> str | None:
    """The checkpoint from which a cell runs again, if its kernel says so in this output."""
    told = message["metadata"].get("gpufair")
    found = told.get("cut") if isinstance(told, dict) else None
    return found if isinstance(found, str) else None


def _display_id(content: dict[str, Any]) -> str | None:
    transient = content.get("transient")
    display = transient.get("display_id") if isinstance(transient, dict) else None
    return display if isinstance(display, str) else None


def _count(content: dict[str, Any]) -> int | None:
    count = content.get("execution_count")
    return count if isinstance(count, int) else None


def _seconds(date: object) -> float | None:
    try:
        return datetime.fromisoformat(str(date)).timestamp()
    except ValueError:
        return None
