"""The run of one notebook on its node, from the first cell, or from where the last start of it was cut short."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from gpufair.client.notebooks import INPUT, JOB, RESULT, BadNotebook, NotebookJob
from gpufair.node.files import write_private
from jupyter_gpufair.batch import document, parameters
from jupyter_gpufair.batch.keeper import Keeper, NotKept
from jupyter_gpufair.kernel.__main__ import STAYS

REPEATABLE = "gpufair-repeatable"  # a tag: no checkpoint after this cell; it may run again
DONE = "done"  # the exit status of a run that came to its end
BEGUN = "begun"  # the number of the cell that was begun last, and for the how-manieth time
LEAVES = 128 + signal.SIGTERM
_RESERVE_S = 1.0  # of the grace: to end the kernel
_GRACE_S = 20.0  # where no notice says how long
_KERNEL = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]


async def run(folder: Path) -> int:
    """Run the job in a folder. Returns the exit status.

    Raises:
        BadNotebook: There is no job, or its notebook cannot run.
    """
    with suppress(OSError, ValueError):  # it came to its end, but was told to leave before anybody knew
        return int((folder / DONE).read_text())
    try:
        job = NotebookJob(**json.loads((folder / JOB).read_bytes()))
        source = (folder / INPUT).read_bytes()
    except (OSError, ValueError, TypeError) as err:
        raise BadNotebook(f"{folder} holds no job ({err}); submit the notebook again") from err
    return await _Run(folder, job, source).run()


class _Run:
    def __init__(self, folder: Path, job: NotebookJob, source: bytes) -> None:
        self._folder, self._job = folder, job
        self._keeper = Keeper(folder)
        values = {name: parameters.typed(text) for name, text in job.parameters.items()}
        fresh = parameters.parameterized(document.read(source, "the notebook that was submitted"), values)
        self._from: str | None = None  # the checkpoint to begin with
        self._finished = 0
        if (kept := self._keeper.newest()) is not None:
            self._from, self._finished = kept
        self._notebook = self._before(fresh)
        document.begin(self._notebook, os.environ, values)
        self._writer = document.Writer(self._notebook)
        for number in range(self._finished):
            self._writer.settled(number)
        self._leave_by: float | None = None  # monotonic, once it is told to leave
        self._told = asyncio.Event()
        self._leaves_as = "preempted"
        self._told_why = ""
        self._runs: int | None = None  # the cell that runs, or ran last

    def _before(self, fresh: NotebookNode) -> NotebookNode:
        """What the last start left, with the cells that are not finished as they were submitted."""
        try:
            notebook = document.read((self._folder / RESULT).read_bytes(), RESULT)
        except (OSError, BadNotebook):
            self._from, self._finished = None, 0  # the first start; or nothing of an earlier one is there
            for cell in fresh.cells:
                _empty(cell)
            return fresh
        for cell in notebook.cells[self._finished :]:
            _empty(cell)
        # It is in no output yet if its start was cut short.
        with suppress(OSError, ValueError, IndexError):
            number, runs = (self._folder / BEGUN).read_text().split()
            document.facts_of(notebook.cells[int(number)])["runs"] = int(runs)
        return notebook

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._leave)
        try:
            self._save()
            spec = self._spec()
            client = NotebookClient(
                self._notebook,
                km=_manager(spec),
                timeout=self._job.cell_timeout_s,
                startup_timeout=120,
                allow_errors=False,
                shutdown_kernel="immediate",  # what counts is saved, and the grace is short
                resources={"metadata": {"path": os.getcwd()}},  # noqa: PTH109
            )
            async with _kernel_of(client):
                state = await self._cells(client, can_keep=await self._ready(client))
                _store_widgets(client, self._notebook)
        except DeadKernelError as err:
            with suppress(TimeoutError):  # other kernels end at the very signal that tells us
                await asyncio.wait_for(self._told.wait(), 0.5)
            state = await self._told_to_leave() or "failed"
            if state == "failed":
                why = self._told_why or str(err)
                _say("the kernel died" if self._told_why else f"the kernel died: {why}")
                if self._runs is not None:
                    document.died(self._notebook.cells[self._runs], why)
        document.end(self._notebook, state)
        self._save()
        code = {"completed": 0, "preempted": LEAVES}.get(state, 1)
        if state != "preempted" and not (state == "failed" and document.is_tried_again(os.environ)):
            self._clear(code)
        return code

    def _clear(self, code: int) -> None:
        """Nothing goes on from here: the output has all that is worth keeping. How it ended stays."""
        write_private(self._folder / DONE, str(code).encode())
        for path in self._folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != DONE:
                path.unlink(missing_ok=True)

    def _spec(self) -> KernelSpec:
        """How its kernel is started: ours wherever the notebook is in Python."""
        name = self._job.kernel or self._notebook.metadata.get("kernelspec", {}).get("name", "python3")
        try:
            spec = KernelSpecManager().get_kernel_spec(name)
        except NoSuchKernel:
            language = self._notebook.metadata.get("kernelspec", {}).get("language", "python")
            # A notebook may name the environment of whoever wrote it; a kernel that was asked for is meant.
            meant = self._job.kernel and not self._job.kernel.startswith("gpufair-")
            if meant or language != "python":
                raise BadNotebook(f"there is no kernel {name!r} on this node; install it, or name another") from None
            spec = KernelSpec(argv=_KERNEL, language="python", display_name="Python 3")
        if spec.language == "python":
            spec.argv, spec.env = _KERNEL, {**spec.env, STAYS: "1"}
        spec.metadata.pop("kernel_provisioner", None)  # this is the node: it is started here
        return spec

    async def _ready(self, client: NotebookClient) -> bool:
        """Restore what is finished. Whether the kernel can be checkpointed."""
        assert client.kc is not None
        kernel: Any = client.kc
        can_keep = await self._keeper.knows(kernel)
        if not can_keep:
            _say("this kernel cannot be checkpointed: after a preemption the notebook begins anew")
        if self._from is None or not can_keep:
            self._restart_from(0)
            return can_keep
        try:
            reply = await self._keeper.restore(kernel, self._from)
        except NotKept as err:
            _say(f"the checkpoint cannot be restored ({err}); the notebook begins anew")
            self._restart_from(0)
            return can_keep
        lost = {str(name): str(reason) for name, reason in reply.get("lost") or []}
        if lost:
            document.facts_of(self._notebook)["lost"] = lost
        _say(f"goes on after cell {self._finished} of {len(self._notebook.cells)}")
        return can_keep

    def _restart_from(self, number: int) -> None:
        self._finished = number
        self._writer = document.Writer(self._notebook)
        for cell in self._notebook.cells[number:]:
            _empty(cell)

    async def _cells(self, client: NotebookClient, *, can_keep: bool) -> str:
        """Run what is left; how it ended."""
        cells = self._notebook.cells
        for number in range(self._finished, len(cells)):
            if (state := await self._told_to_leave()) is not None:
                return state
            cell = cells[number]
            if cell.cell_type == "code" and cell.source.strip():
                state = await self._cell(client, cell, number)
                if state is not None:
                    return state
                if can_keep and REPEATABLE not in cell.metadata.get("tags", []):
                    await self._keep(client, number + 1)
        return "completed"

    async def _cell(self, client: NotebookClient, cell: NotebookNode, number: int) -> str | None:
        """Run one; None if it is done, else how the run ends."""
        self._runs, facts = number, document.facts_of(cell)
        facts["runs"] = facts.get("runs", 0) + 1
        facts["began_s"] = time.time()
        (self._folder / BEGUN).write_text(f"{number} {facts['runs']}")
        _say(f"cell {number + 1} of {len(self._notebook.cells)}")
        running = asyncio.ensure_future(client.async_execute_cell(cell, number, store_history=True))
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            # A cell that ends within the grace need not run again.
            left = (self._leave_by or 0.0) - time.monotonic() - _RESERVE_S
            await asyncio.wait({running}, timeout=max(left, 0.0))
        told.cancel()
        if not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await running
            return self._leaves_as
        try:
            running.result()
        except CellExecutionError as err:
            _say(f"cell {number + 1} failed: {err.ename}: {err.evalue}")
            return "failed"
        except CellTimeoutError:
            _say(f"cell {number + 1} failed: it took longer than {self._job.cell_timeout_s:g} s")
            return "failed"
        facts["ended_s"] = time.time()
        self._writer.settled(number)
        return None

    async def _keep(self, client: NotebookClient, finished: int) -> None:
        """Outputs first: a cell is finished when its checkpoint is there."""
        self._save(durable=True)
        kernel: Any = client.kc
        facts = document.facts_of(self._notebook)
        try:
            reply = await self._keeper.save(kernel, finished)
        except NotKept as err:
            facts["not_kept"] = str(err)
            _say(f"no checkpoint after cell {finished}: {err}")
            return
        facts["checkpoints"] += 1
        facts["unsaved"] = {str(name): str(reason) for name, reason in reply.get("lost") or []}

    # -- leaving ------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        left = _GRACE_S
        with suppress(OSError, ValueError, KeyError, TypeError):
            notice = json.loads(Path(os.environ["GPUFAIR_NOTICE_FILE"]).read_bytes())
            left = float(notice["deadline_s"]) - time.time()
            self._told_why = str(notice["text"])
            self._leaves_as = str(notice.get("outcome", self._leaves_as))  # it says so where it is to leave for good
            if self._leaves_as != "failed":  # else who ends it has written it in this log
                _say(self._told_why)
        self._leave_by = time.monotonic() + left
        self._told.set()

    async def _told_to_leave(self) -> str | None:
        await asyncio.sleep(0)
        return self._leaves_as if self._told.is_set() else None

    def _save(self, *, durable: bool = False) -> None:
        try:
            self._writer.write(self._folder / RESULT, durable=durable)
            document.publish(self._folder / RESULT, Path(self._job.output))
        except OSError as err:
            raise BadNotebook(f"the output cannot be written: {err}; free some space, and submit it again") from err


@asynccontextmanager
async def _kernel_of(client: NotebookClient) -> AsyncIterator[None]:
    """A kernel for the length of a block, without nbclient's own handlers of signals, which would end it at a notice."""
    client.reset_execution_trackers()
    await client.async_start_new_kernel()
    try:
        await client.async_start_new_kernel_client()
        yield
    finally:
        await client._async_cleanup_kernel()  # noqa: SLF001 - async_setup_kernel calls nothing else


def _manager(spec: KernelSpec) -> AsyncKernelManager:
    manager = AsyncKernelManager(kernel_name="python3")
    manager._kernel_spec = spec  # noqa: SLF001 - the property would look it up by name
    return manager


def _empty(cell: NotebookNode) -> None:
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None


def _store_widgets(client: NotebookClient, notebook: NotebookNode) -> None:
    """Widgets of this start beside those of earlier ones."""
    before = dict(notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {}).get("state", {}))
    client.set_widgets_metadata()
    here = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json")
    if here is not None:
        here["state"] = {**before, **here["state"]}


def _say(text: str) -> None:
    sys.stdout.write(f"gpufair: {text}\n")
    sys.stdout.flush()
