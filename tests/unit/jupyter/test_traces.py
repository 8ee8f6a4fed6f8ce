"""What cells wrote, as one text that a log shows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gpufair.client import Workload
from gpufair.client.types import LogPage
from jupyter_gpufair import traces
from jupyter_gpufair.answers import Log


def test_a_cell_is_told_by_its_number_and_what_it_wrote() -> None:
    """Streams as they are, results and errors as a terminal has them without colours, pictures by name."""
    png = {"output_type": "display_data", "data": {"image/png": "…"}}
    broken = {"output_type": "error", "traceback": ["\x1b[0;31mZeroDivisionError\x1b[0m: by zero"]}
    done = [{"output_type": "stream", "text": ["a\n", "b"]}, {"output_type": "execute_result", "data": {"text/plain": "42"}}]
    cells: list[dict[str, Any]] = [{"execution_count": 1, "outputs": done}, {"execution_count": None, "outputs": [png, broken]}, {"outputs": []}]
    assert traces.text_of(cells) == "[1]\na\nb42\n[ ]\n(image/png)\nZeroDivisionError: by zero\n[ ]\n"


class _Client:
    def __init__(self, text: str) -> None:
        self.text = text

    async def outputs(self, _: str) -> list[dict[str, Any]]:
        return [{"execution_count": 1, "outputs": [{"output_type": "stream", "text": self.text}]}]

    async def log(self, _: str, after: int) -> LogPage:
        start = max(0, len(self.text) + after) if after < 0 else min(after, len(self.text))
        return LogPage(self.text[start : start + (1 << 20)], min(len(self.text), start + (1 << 20)), len(self.text))


@pytest.mark.parametrize("kind", ["session", "batch"])
def test_the_end_of_a_log_follows_and_is_all_that_is_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end first, then only what came since; of what grew faster than anybody reads, the end again."""
    client = _Client("x" * (2 * traces.TAIL_BYTES))
    monkeypatch.setattr(traces, "sessions", lambda: SimpleNamespace(link=SimpleNamespace(client=client)))
    run = Workload("w", "running", kind=kind)

    def ask(after: int) -> Log:
        return asyncio.run(traces._log(run, after))

    first = ask(-1)
    assert len(first.text) == traces.TAIL_BYTES
    assert first.start + len(first.text) == first.after
    client.text += "more\n"
    more = ask(first.after)
    assert (more.text == "more\n", more.start == first.after) == (kind == "batch",) * 2
    assert (more.text.endswith("xmore\n"), len(more.text) == traces.TAIL_BYTES) == (kind == "session",) * 2
    client.text += "y" * (2 * traces.TAIL_BYTES)
    last = ask(first.after)
    assert (len(last.text), last.start > first.after) == (traces.TAIL_BYTES, True)
