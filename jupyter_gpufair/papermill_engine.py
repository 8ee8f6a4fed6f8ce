"""`papermill --engine gpufair`: the notebook runs on a node of the scheduler, when its turn comes."""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from papermill.engines import Engine, NotebookExecutionManager

from gpufair.cli.awaited import awaited
from gpufair.cli.words import clean, what
from gpufair.client import Client
from gpufair.client.notebooks import BadNotebook, NotebookJob, launch, prepare
from gpufair.core.errors import GpufairError
from jupyter_gpufair.batch.document import facts_of, read

_POLL_S, _SLOWEST_S = 0.3, 5.0
_USUAL_S = 3600.0
_TAIL_BYTES = 1000
_PROFILES = "gpufair-"
# What papermill hands to every engine, and the scheduler has no use for.
_WISHES = (
    *("allocation", "gpus", "nodes", "gpu_type", "min_runtime_s", "expected_s", "priority", "profile", "name", "pools"),
    *("cpus", "memory_bytes", "within", "exclude", "where", "movable", "retries", "retry_after_s", "timeout_s", "notify"),
)


class RunFailed(GpufairError):
    """The run ended without its notebook having come to its end."""


class GpufairEngine(Engine):  # type: ignore[misc]  # papermill has no annotations
    """Submits, waits, and keeps papermill's own output as current as the node's.

    What is asked for comes from keyword arguments of ``papermill.execute_notebook`` (the fields of a submission: ``gpus``,
    ``allocation``, ``min_runtime_s``, ``retries``, ``timeout_s`` and so on; ``after`` and ``after_any`` take an id or a name, or a
    list of them), else from the notebook's metadata ``gpufair``, else from the profile of a
    kernel ``gpufair-PROFILE``; else it is 1 GPU, protected for an hour.
    """

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: NotebookExecutionManager,
        kernel_name: str,
        execution_timeout: float | None = None,
        input_path: str | None = None,
        **options: Any,
    ) -> None:
        """Run it; called by papermill with the parameters set already."""
        asked = dict(facts_of(nb_man.nb).get("submit", {})) | options
        wish = {name: asked.get(name) for name in _WISHES}
        wish["notify"] = _listed("notify", asked.get("notify")) or None
        others = {name: _listed(name, asked.get(name)) for name in ("after", "after_any")}
        if wish["profile"] is None and kernel_name.startswith(_PROFILES):
            wish["profile"] = kernel_name.removeprefix(_PROFILES)
        if wish["profile"] is None:
            wish["gpus"] = 1 if wish["gpus"] is None else wish["gpus"]
            if wish["min_runtime_s"] is None:
                wish["min_runtime_s"] = _USUAL_S if wish["gpus"] else 0.0  # without GPUs nobody is preempted
        wish["name"] = wish["name"] or Path(nb_man.output_path or input_path or "notebook").name
        workload = uuid.uuid4().hex
        beside = Path(nb_man.output_path).absolute() if nb_man.output_path else Path.cwd() / "notebook.ipynb"
        output = beside.with_name(f".{beside.stem}-{workload[:8]}.ipynb")
        source = nbformat.writes(nb_man.nb).encode()  # type: ignore[no-untyped-call]
        own = nb_man.nb.metadata.get("kernelspec", {}).get("name")
        kernel = "" if kernel_name == own else kernel_name  # papermill names one in any case
        folder = prepare(source, NotebookJob(str(output), {}, kernel, execution_timeout), workload)
        try:
            with Client() as service:
                wish |= awaited(service, **others)
                service.submit(launch(folder, os.getcwd(), {}), id=workload, kind="batch", resumable=True, **wish)  # noqa: PTH109
                try:
                    _follow(service, workload, output, nb_man)
                except KeyboardInterrupt:
                    service.stop(workload)
                    raise
        finally:
            output.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _listed(name: str, value: object) -> list[str]:
    """Words, as they were written. Raises: BadNotebook: In no way that we know."""
    words = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise BadNotebook(f"{name}={value!r} is no word; write one, or a list of them")
    return list(words)


def _follow(service: Client, workload: str, result: Path, nb_man: NotebookExecutionManager) -> None:
    seen, stamp, pause, done = "", 0, _POLL_S, set[int]()
    while True:
        now = service.workload(workload)
        if (state := f"{what(now)}: {now.reason}" if now.reason else what(now)) != seen:
            seen = state
            sys.stderr.write(f"gpufair: {now.label} is {state}\n")
        newest = result.stat().st_mtime_ns if result.exists() else 0
        if newest != stamp:
            stamp, begun = newest, time.monotonic()
            _take_over(nb_man, result, done)
            pause = min(max(_POLL_S, 10 * (time.monotonic() - begun)), _SLOWEST_S)  # a large one is not read all the time
        if not now.live:
            _take_over(nb_man, result, done)
            if now.outcome != "completed" and facts_of(nb_man.nb).get("state") != "failed":
                said = f"; it said last: {words}" if (words := _last_words(service, workload)) else ""
                more = f"`gpufair logs {workload[:8]}` has more"
                raise RunFailed(f"the run has {now.outcome or 'ended'}: {now.reason}{said}; {more}")
            return
        time.sleep(pause)


def _last_words(service: Client, workload: str) -> str:
    """The last line of its log; "" where there is none."""
    with suppress(GpufairError):
        size = service.log(workload).size_bytes
        lines = service.log(workload, max(0, size - _TAIL_BYTES)).text.split("\n")
        return next((clean(line) for line in reversed(lines) if line.strip()), "")
    return ""


def _take_over(nb_man: NotebookExecutionManager, result: Path, done: set[int]) -> None:
    """Bring papermill's notebook up to the node's, and its progress with it."""
    if not result.exists():
        return
    notebook = read(result.read_bytes(), str(result))
    nb_man.nb.metadata.papermill["exception"] = None  # a cell that failed may since have been tried again
    nb_man.nb.metadata.gpufair = notebook.metadata.gpufair
    for number, (mine, theirs) in enumerate(zip(nb_man.nb.cells, notebook.cells, strict=True)):
        facts = theirs.metadata.get("gpufair", {})
        mine.metadata["gpufair"] = facts
        if mine.cell_type == "code":
            mine.outputs, mine.execution_count = theirs.outputs, theirs.execution_count
        if "ended_s" in facts and number not in done:
            done.add(number)
            nb_man.cell_start(mine, number)
            nb_man.cell_complete(mine, number)
        elif any(output.output_type == "error" for output in mine.get("outputs", [])):
            nb_man.cell_exception(mine, number)
    if "widgets" in notebook.metadata:
        nb_man.nb.metadata.widgets = notebook.metadata.widgets
    nb_man.save()
