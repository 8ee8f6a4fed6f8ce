"""The gate of a kernel: cells go through it one at a time, and wait here while no kernel serves.

Why one at a time: what waits in the kernel's own queue is lost with the kernel. So "Run All" survives a preemption that
comes between two cells, and an interrupt can truthfully say that a waiting cell was not run. What the kernel would do
with a queue is done here: after an error the waiting cells are aborted (``stop_on_error``).

The gate belongs to the kernel, not to a websocket: cells outlive a reload of the page. What waits is on the disk before
it counts as held (``held_file``), so they outlive the server too; the next one asks the supervisor's record which of
them have begun (``recovery``). It sends cells through sockets of its own and lives on the server's loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from jupyter_client.session import Session as JupyterSession

from gpufair.client import AsyncClient
from gpufair.core.errors import GpufairError
from jupyter_gpufair import again, messages, recovery
from jupyter_gpufair.cell import Cell, Page
from jupyter_gpufair.clients import Clients
from jupyter_gpufair.held_file import HeldFile, NotKept
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.kernel_line import KernelLine
from jupyter_gpufair.offer import AWAY, tagged
from jupyter_gpufair.recorded import note_of
from jupyter_gpufair.session import Generation, Session
from jupyter_gpufair.touch import touch
from jupyter_gpufair.unkept import Unkept

MAX_CELLS = 1000
MAX_BYTES = 16 << 20
SEEN_S = 10.0  # until what is told of a session shows what was answered
INTERRUPTED = frozenset({"KeyboardInterrupt", "Preempted"})  # the latter where our kernel had notice


class Gate:
    """See the module.

    Attributes:
        kept: The file of what waits.
    """

    def __init__(
        self,
        kernel_manager: Any,
        session: Session,
        kept: HeldFile | Unkept,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.km, self.session, self.kept = kernel_manager, session, kept
        self.own = JupyterSession(key=kernel_manager.session.key, username="gpufair")
        self.clients = Clients(self.own)
        self._changed = changed or (lambda: None)
        self._held: deque[Cell] = deque(kept.cells)
        self._held_bytes = sum(cell.size for cell in self._held)
        self._doubt = bool(self._held)  # whether some of them may have begun
        self._news = asyncio.Event()
        self._sent: OrderedDict[str, Cell] = OrderedDict()
        self._line = KernelLine(kernel_manager, self.own, self.clients, self._answered)
        self._attached: Generation | None = None
        self._before: str | None = None  # the newest checkpoint when the session was last running
        self._preemptions = 0  # of the session, then
        self._rerun = True  # whether any cell of it may be wanted to run again (``again``); its kernel says
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        self._parking = False  # what waits is for the kernel after this one
        self._unlisten = session.listen(self._told, asyncio.get_running_loop())
        self._told(session)
        if self._doubt:
            self._begin("settle", self._settle)

    # ------------------------------------------------------------------ what is going on
    @property
    def held(self) -> int:
        """How many cells wait, of those that are on the disk: this is what a user is told."""
        return sum(cell.durable for cell in self._held)

    @property
    def busy(self) -> bool:
        """Whether a cell runs, of ours or of a server before us."""
        workload = self.session.workload
        return bool(self._sent) or (workload is not None and workload.busy)

    def cells(self) -> list[dict[str, Any]]:
        """Those that are not answered yet, in their order."""
        running = [(cell, "sent") for cell in self._sent.values()]
        waiting = [(cell, "held") for cell in self._held if cell.durable]
        return [{"msg_id": c.msg_id, "cell_id": c.cell_id, "state": state} for c, state in (*running, *waiting)]

    # ------------------------------------------------------------------ clients
    def join(self, page: Page) -> None:
        """A websocket opened."""
        self.clients.join(page)
        for cell in (*self._held, *self._sent.values()):
            if cell.client == page.session.session:
                cell.origin = page
        if self._attached is not None:
            self._line.open = False  # until the newcomer hears the kernel: it may send its first cell at once
            self._wake()

    def leave(self, page: Page) -> None:
        """A websocket closed; what it asked for goes on."""
        self.clients.open.discard(page)
        self._pump()

    def submit(self, page: Page, parts: list[bytes]) -> None:
        """A client sent a cell."""
        cell = Cell.of(parts, origin=page)
        if self.session.ended:
            self.clients.refuse(cell, messages.error(messages.ENDED, messages.held_text(self.session.workload)))
        elif len(self._held) >= MAX_CELLS or self._held_bytes + cell.size > MAX_BYTES:
            said = f"{len(self._held)} cells ({self._held_bytes / 1e6:.1f} MB) wait for this session already"
            self.clients.refuse(cell, messages.error("TooManyCells", f"{said}; this one was not run."))
        elif cell.header.get("subshell_id") and self._line.open:
            self._send(cell)  # a subshell runs beside the main one
        else:
            self._held.append(cell)
            self._held_bytes += cell.size
            self._pump()
            if self._held:
                self._keep()
                self._touch()

    def withdraw(self) -> None:
        """The user does not want what waits: interrupt, park, restart and end say so."""
        left = self._take_sent(lambda cell: cell.late is not None and cell.again_from == AWAY)
        for cell in (*left, *self._take_held()):
            if cell.runs or cell in left:  # its output says that it runs again
                self._note(cell, messages.error(messages.CUT, messages.CUT_TEXT))
            self.clients.answer(cell, {"status": "aborted"})

    def give_up(self, ename: str, evalue: str) -> None:
        """Nobody will run what waits."""
        self._fail(self._take_held(), ename, evalue)

    def _skip(self, cells: Iterable[Cell]) -> None:
        """Abort cells that were meant to follow one that failed; who is not there to see that finds a note."""
        for cell in cells:
            if not self.clients.there(cell):
                self._note(cell, messages.error(messages.NOT_RUN, messages.NOT_RUN_TEXT))
            self.clients.answer(cell, {"status": "aborted"})

    def _fail(self, cells: Iterable[Cell], ename: str, evalue: str) -> None:
        for cell in cells:
            error = messages.error(ename, evalue)
            self._note(cell, error)
            self.clients.refuse(cell, error)

    def _take_held(self, which: Callable[[Cell], bool] = lambda _: True) -> list[Cell]:
        """Cells that wait no more."""
        cells = [cell for cell in self._held if which(cell)]
        self._held = deque(cell for cell in self._held if not which(cell))
        self._held_bytes = sum(cell.size for cell in self._held)
        for cell in cells:
            self.kept.over(cell.msg_id)
        if cells:
            self._changed()
        return cells

    def restarting(self) -> None:
        """A fresh kernel was asked for: what ran or waited belongs to the old one."""
        for cell in self._take_sent():
            self.clients.answer(cell, {"status": "aborted"})
            self.km.execution_state = "idle"
        # What was sent since the kernel died is meant for the next one: who sent it had been told.
        if not self.session.kernel_died:
            self.withdraw()
        self._shut()

    def close(self, *, keep: bool) -> None:
        """The kernel leaves this server. ``keep``: the next server goes on with what waits; else it is not run."""
        if not keep:
            self.withdraw()
        self._closed = True
        self._unlisten()
        self._shut()
        for task in self._tasks.values():
            task.cancel()
        self.kept.close(forget=not keep)

    # ------------------------------------------------------------------ what must survive
    def _keep(self) -> None:
        """Write down what waits, and the cell that it waits for: should that one fail unseen, they must not run."""
        try:
            for cell in (*self._sent.values(), *self._held):
                if not cell.kept:
                    self.kept.hold(cell)
                    cell.kept = True
        except NotKept as err:
            # It waits all the same, for as long as this server lives; but it does not count as held.
            self.km.log.warning("session %s: %s", self.session.kernel_id, err)
        self._begin("announce", self._announce)

    async def _announce(self) -> None:
        """Say that cells are held, once they are on the disk."""
        while new := [cell for cell in (*self._sent.values(), *self._held) if cell.kept and not cell.durable]:
            if not await self.kept.synced():
                return
            for cell in new:
                cell.durable = True
            self._changed()

    def _note(self, cell: Cell, error: dict[str, Any]) -> None:
        self.kept.note(note_of(cell, error, time.time()))

    async def _settle(self) -> None:
        """Find out which cells of a server before us have begun; until then nothing is sent."""
        found = await recovery.settled_account(self.session, self._line, self._news, self.km.log)
        workload = self.session.workload
        assert workload is not None
        self._settled(recovery.sort_out([cell for cell in self._held if cell.recovered], found, workload))

    def _settled(self, verdict: recovery.Verdict) -> None:
        self._doubt = False
        over = {cell.msg_id for cell in (*verdict.ran, *verdict.skip, *verdict.unknown)}
        self._take_held(lambda cell: cell.msg_id in over)
        for cell, begins_with in verdict.again:
            self._put_back(cell, begins_with)
        self._skip(verdict.skip)
        self._fail(verdict.unknown, messages.UNKNOWN, messages.UNKNOWN_TEXT)
        self._told(self.session)

    # ------------------------------------------------------------------ what the scheduler says
    def _told(self, session: Session) -> None:
        workload = session.workload
        if self._closed or workload is None:
            return
        self._news.set()
        if workload.state == "running":
            self._before = workload.checkpoint.id if workload.checkpoint is not None else None
            self._preemptions = workload.preemptions
            self._release_late()
        if self._sent:
            self._line.flush()  # an answer that is here already counts
        if session.attached != self._attached and self._attached is not None:
            self._shut()
        # "stopping" says nothing yet of what was saved; it lasts seconds.
        gone = workload.state not in {"running", "checkpointing", "stopping"} or session.kernel_died
        if self._sent and (gone or (session.attached is None and workload.state == "running")):
            self._cut()
        if session.ended and not self._doubt:
            self._fail(self._take_held(), messages.ENDED, messages.held_text(workload))
        elif session.attached is not None and self._attached is None:
            self._attached = session.attached
            self._wake()
        self._pump()
        self._touch()

    def _cut(self) -> None:
        """Tell those whose cells were running that they are not."""
        workload = self.session.workload
        assert workload is not None
        self.km.execution_state = "idle"
        moved = again.cut_for_another(workload, self._preemptions)
        away = again.goes_on(workload) and not self.session.kernel_died
        # What one that went away waits for was saved when it did so, whether it has answered since or not.
        gone = [c for c in self._sent.values() if (away and c.again_from == AWAY) or (moved and c.late)]
        anew = [c for c in gone if again.possible(c, c.again_from, workload)]
        for cell in anew:
            self._put_back(cell, str(cell.again_from))
        cells = self._take_sent(
            lambda cell: cell not in anew and not cell.never_began(workload, self._before, self._preemptions)
        )
        waits = self._take_sent(lambda _: True, over=False)
        self._held.extendleft(reversed(waits))
        self._held_bytes += sum(cell.size for cell in waits)
        for cell in cells:
            ename, evalue = messages.cut_text(workload, cell.late_s or time.time(), self._before)
            error = messages.error(ename, f"{evalue} {again.why_not(cell, moved=moved, switched=self._rerun)}".rstrip())
            self._note(cell, error)
            if cell.late is None:
                self.clients.refuse(cell, error)
            else:
                # Interrupted in time: the kernel has answered, and the user must know why.
                self.clients.say_error(cell, error)
                self.clients.answered(cell, cell.late)
                self.clients.say_idle()
        if any(cell.late is None or cell.again_from is not None for cell in cells):
            self._skip(self._take_held())  # the cells behind it were meant to follow it
        if self._held:
            self._keep()

    def _put_back(self, cell: Cell, begins_with: str) -> None:
        """A cell that was cut is to run again, from this checkpoint."""
        cell.runs, cell.again_from = cell.runs + 1, begins_with
        cell.late, cell.late_s, cell.began = None, 0.0, False
        try:
            self.kept.again(cell)
        except NotKept as err:
            self.km.log.warning("session %s: %s", self.session.kernel_id, err)

    def heard(self, msg_id: str) -> None:
        """A client heard the kernel begin this cell."""
        if (cell := self._sent.get(msg_id)) is not None:
            cell.began = True

    @property
    def listening(self) -> bool:
        """Whether it matters to ``heard`` what clients hear."""
        return any(not cell.began for cell in self._sent.values())

    def _take_sent(self, which: Callable[[Cell], bool] = lambda _: True, *, over: bool = True) -> list[Cell]:
        """Cells that the kernel will not answer any more, or has."""
        cells = [cell for cell in self._sent.values() if which(cell)]
        for cell in cells:
            del self._sent[cell.msg_id]
            if over:
                self.kept.over(cell.msg_id)
        return cells

    # ------------------------------------------------------------------ to the kernel and back
    def _begin(self, name: str, work: Callable[[], Any]) -> None:
        """Do ``work`` in the background, unless that is going on."""
        if self._closed or ((task := self._tasks.get(name)) is not None and not task.done()):
            return
        self._tasks[name] = asyncio.get_running_loop().create_task(work())

    def _wake(self) -> None:
        """See to it that every client hears the kernel, then open."""
        self._begin("wake", self._awaken)

    async def _awaken(self) -> None:
        # Again from the start when the kernel is replaced meanwhile: nobody else would open for the new one.
        while not self._closed and self._attached is not None and not await self._line.knock():
            pass
        self._news.set()
        self._pump()

    def _shut(self) -> None:
        self._attached, self._parking = None, False
        self.clients.say_idle()
        self._line.shut()

    def _pump(self) -> None:
        ready = self._line.open and self.session.serving and not self._doubt and not self._parking
        while ready and self._held and not self._main_busy():
            cell = self._held.popleft()
            self._held_bytes -= cell.size
            self._send(cell)
            self._changed()

    def _main_busy(self) -> bool:
        return any(not cell.header.get("subshell_id") for cell in self._sent.values())

    def _send(self, cell: Cell) -> None:
        self._sent[cell.msg_id] = cell
        if not cell.kept and (self._rerun or tagged(cell.metadata)):
            with suppress(NotKept):
                self.kept.hold(cell)
                cell.kept = True
        self._line.send(again.offered(cell))

    def _answered(self, channel: str, msg_id: str, parts: list[bytes], content: dict[str, Any]) -> None:
        """The kernel said something to us about a cell: its reply, or a question for input."""
        cell = self._sent.get(msg_id)
        if cell is None:
            return
        if channel != "shell":
            self.clients.deliver(cell, channel, parts)
            return
        failed = content.get("status") == "error"
        if not cell.header.get("subshell_id"):
            self._rerun = again.wanted_in(content)
        cut = failed and content.get("ename") in INTERRUPTED
        begins_with = again.begins_with(content) if cut else None
        if cut and (begins_with is not None or self.session.state == "checkpointing"):
            cell.late, cell.late_s, cell.again_from = parts, time.time(), begins_with
            if again.asks(content, "move"):
                self._begin("move", self._move)
        else:
            self._take_sent(lambda sent: sent is cell)
            self.clients.answered(cell, parts)
        if failed and cell.stop_on_error and begins_with is None:
            # Now, even if it is late: what is sent while the session is saved was sent by somebody who knew.
            self._skip(self._take_held())
        if again.asks(content, "park"):
            self._parking = True
            self._begin("park", self._park)
        self._pump()

    # ------------------------------------------------------------------ cells that wait elsewhere (``kernel.away``)
    async def _move(self) -> None:
        """A cell has left so that its session gives its GPUs back."""
        try:
            await on_io(self.session.ask(AsyncClient.open_on_cpu))
        except GpufairError as err:
            self.km.log.warning("session %s keeps its GPUs: %s", self.session.kernel_id, err)
        else:
            # What is told of the session may be older than the answer, and then says nothing of the wish.
            with suppress(TimeoutError):
                async with asyncio.timeout(SEEN_S):
                    while self.session.serving and (now := self.session.workload) is not None and now.move is None:
                        self._news.clear()
                        await self._news.wait()
        self._stay(asked=False)

    async def _park(self) -> None:
        """A cell that gave GPUs back has ended: the next one asks for them."""
        try:
            await on_io(self.session.ask(AsyncClient.park))
        except GpufairError as err:
            self.km.log.warning("session %s stays on a CPU node: %s", self.session.kernel_id, err)
            self._parking = False
            self._pump()

    def _stay(self, *, asked: bool) -> None:
        """Send cells that left to the kernel that is there, if their session does not move: the one that they left, mostly."""
        workload = self.session.workload
        if self._closed or workload is None or not self.session.serving or again.leaves(workload, asked=asked):
            return
        for cell in self._take_sent(lambda cell: cell.late is not None and cell.again_from == AWAY, over=False):
            self._put_back(cell, AWAY)
            self._held.appendleft(cell)
            self._held_bytes += cell.size
        self._pump()

    def _release_late(self) -> None:
        self._stay(asked="move" in self._tasks and not self._tasks["move"].done())
        for cell in self._take_sent(lambda cell: cell.late is not None and cell.again_from != AWAY):
            self.clients.deliver(cell, "shell", cell.late or [])
            if cell.again_from is not None:  # the preemption was called off
                self.clients.say(cell, "iopub", "status", {"execution_state": "idle"})
                self._skip(self._take_held())

    # ------------------------------------------------------------------ touching a parked session resumes it
    def _touch(self) -> None:
        if self._held and not self._doubt and self.session.state == "parked":
            self._begin("touch", self._resume)

    async def _resume(self) -> None:
        refused = await touch(self.session, lambda: bool(self._held) and not self._closed, self.km.log)
        if refused is not None:
            why = f"The session could not be resumed, so this cell was not run: {refused}"
            self._fail(self._take_held(), "NotResumed", why)
