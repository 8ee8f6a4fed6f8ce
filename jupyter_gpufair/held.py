"""The gate of a kernel: cells go through it one at a time, and wait here while no kernel serves.

Why one at a time: what waits in the kernel's own queue is lost with the kernel. So "Run All" survives a preemption that
comes between two cells, and an interrupt can truthfully say that a waiting cell was not run. What the kernel would do
with a queue is done here: after an error the waiting cells are aborted (``stop_on_error``).

The gate belongs to the kernel, not to a websocket: cells outlive a reload of the page. It sends them through sockets of
its own and hands the answers to whoever asked. It lives on the server's loop.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import zmq
from jupyter_client.session import Session as JupyterSession

from gpufair.client import Refused
from gpufair.core.errors import GpufairError
from jupyter_gpufair import messages
from jupyter_gpufair.cell import Cell, Page
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.session import Generation, Session

MAX_CELLS = 1000
MAX_BYTES = 16 << 20
MAX_LEFT = 100  # answers kept for a client that went away and may come back (per kernel)
AWAKE_S = 3.0  # a kernel whose main thread is free answers in milliseconds
WAKE_S = 0.05
TOUCH_AGAIN_S = 2.0
INTERRUPTED = frozenset({"KeyboardInterrupt", "Preempted"})  # the latter where our kernel had notice


class Gate:
    """See the module."""

    def __init__(self, kernel_manager: Any, session: Session, changed: Callable[[], None] | None = None) -> None:
        self.km, self.session = kernel_manager, session
        self.own = JupyterSession(key=kernel_manager.session.key, username="gpufair")
        self.connections: set[Page] = set()
        self._changed = changed or (lambda: None)
        self._held: deque[Cell] = deque()
        self._held_bytes = 0
        self._sent: OrderedDict[str, Cell] = OrderedDict()
        self._left: deque[tuple[str, str, list[bytes]]] = deque(maxlen=MAX_LEFT)
        self._last: Cell | None = None
        self._streams: dict[str, Any] = {}
        self._attached: Generation | None = None
        self._open = False
        self._before: str | None = None  # the newest checkpoint when the session was last running
        self._preemptions = 0  # of the session, then
        self._waking: asyncio.Task[None] | None = None
        self._touching: asyncio.Task[None] | None = None
        self._closed = False
        self._unlisten = session.listen(self._told, asyncio.get_running_loop())
        self._told(session)

    # ------------------------------------------------------------------ what is going on
    @property
    def held(self) -> int:
        """How many cells wait."""
        return len(self._held)

    @property
    def busy(self) -> bool:
        """Whether a cell runs, of ours or of a server before us."""
        workload = self.session.workload
        return bool(self._sent) or (workload is not None and workload.busy)

    # ------------------------------------------------------------------ clients
    def join(self, connection: Page) -> None:
        """A websocket opened."""
        self.connections.add(connection)
        client = connection.session.session
        mine = [entry for entry in self._left if entry[0] == client]
        self._left = deque((entry for entry in self._left if entry[0] != client), maxlen=MAX_LEFT)
        for _, channel, parts in mine:
            connection.handle_outgoing_message(channel, parts)
        for cell in (*self._held, *self._sent.values()):
            if cell.client == client:
                cell.origin = connection
        if self._attached is not None:
            self._wake()

    def leave(self, connection: Page) -> None:
        """A websocket closed; what it asked for goes on."""
        self.connections.discard(connection)
        self._pump()

    def submit(self, connection: Page, header: dict[str, Any], parts: list[bytes]) -> None:
        """A client sent a cell."""
        content = self.own.unpack(parts[3])
        cell = Cell(
            msg_id=str(header["msg_id"]),
            client=str(header.get("session", "")),
            header=header,
            parts=parts,
            origin=connection,
            stop_on_error=bool(content.get("stop_on_error", True)) and not content.get("silent", False),
            size=sum(len(part) for part in parts),
        )
        if self.session.ended:
            self._refuse(cell, messages.ENDED, messages.held_text(self.session.workload))
        elif len(self._held) >= MAX_CELLS or self._held_bytes + cell.size > MAX_BYTES:
            self._refuse(
                cell,
                "TooManyCells",
                f"{len(self._held)} cells ({self._held_bytes / 1e6:.1f} MB) wait for this session already; this one was not run.",
            )
        elif header.get("subshell_id") and self._open:
            self._send(cell)  # a subshell runs beside the main one
        else:
            self._held.append(cell)
            self._held_bytes += cell.size
            self._pump()
            if self._held:
                self._touch()
                self._changed()

    def interrupt(self) -> None:
        """The user pressed interrupt: what waits is given up."""
        self.abort("aborted")

    def abort(self, status: str, ename: str = "", evalue: str = "") -> None:
        """Give up all waiting cells, with the answer "aborted" or an error."""
        cells, self._held, self._held_bytes = list(self._held), deque(), 0
        for cell in cells:
            if status == "aborted":
                self._answer(cell, {"status": "aborted"})
            else:
                self._refuse(cell, ename, evalue)
        if cells:
            self._changed()

    def restarting(self) -> None:
        """A fresh kernel was asked for: what ran or waited belongs to the old one."""
        for cell in self._take_sent():
            self._answer(cell, {"status": "aborted"})
        # What was sent since the kernel died is meant for the next one: who sent it had been told.
        if not self.session.kernel_died:
            self.abort("aborted")
        self._shut()

    def close(self) -> None:
        """The kernel leaves this server, and what waits is not run."""
        self.abort("aborted")
        self._closed = True
        self._unlisten()
        self._shut()
        for task in (self._waking, self._touching):
            if task is not None:
                task.cancel()

    # ------------------------------------------------------------------ what the scheduler says
    def _told(self, session: Session) -> None:
        workload = session.workload
        if self._closed or workload is None:
            return
        if workload.state == "running":
            self._before = workload.checkpoint.id if workload.checkpoint is not None else None
            self._preemptions = workload.preemptions
            self._release_late()
        if self._sent and self._streams:
            self._streams["shell"].flush(zmq.POLLIN)  # an answer that is here already counts
        if session.attached != self._attached and self._attached is not None:
            self._shut()
        # "stopping" says nothing yet of what was saved; it lasts seconds.
        gone = workload.state not in {"running", "checkpointing", "stopping"} or session.kernel_died
        if self._sent and (gone or (session.attached is None and workload.state == "running")):
            self._cut()
        if session.ended:
            self.abort("error", messages.ENDED, messages.held_text(workload))
        elif session.attached is not None and self._attached is None:
            self._attached = session.attached
            self._wake()
        self._pump()
        if self._held:
            self._touch()

    def _cut(self) -> None:
        """Tell those whose cells were running that they are not."""
        workload = self.session.workload
        assert workload is not None
        cells = self._take_sent()
        unbegun = [cell for cell in cells if cell.never_began(workload, self._before, self._preemptions)]
        for cell in reversed(unbegun):
            self._held.appendleft(cell)
            self._held_bytes += cell.size
        cells = [cell for cell in cells if cell not in unbegun]
        for cell in cells:
            ename, evalue = messages.cut_text(workload, cell.late_s or time.time(), self._before)
            if cell.late is None:
                self._refuse(cell, ename, evalue)
            else:
                # Interrupted in time: the kernel has answered, and the user must know why.
                self._say_error(cell, ename, evalue)
                self._deliver(cell, "shell", cell.late)
                self._last = cell
                self._say_idle()
        if any(cell.late is None for cell in cells):
            self.abort("aborted")  # the cells behind it were meant to follow it

    def _say_idle(self) -> None:
        """Close the last cell: its reply came, but the idle status after it may have gone with the kernel."""
        if self._last is not None:
            self._say(self._last, "iopub", "status", {"execution_state": "idle"})
            self._last = None

    def heard(self, msg_id: str) -> None:
        """A client heard the kernel begin this cell."""
        if (cell := self._sent.get(msg_id)) is not None:
            cell.began = True

    @property
    def listening(self) -> bool:
        """Whether it matters to ``heard`` what clients hear."""
        return any(not cell.began for cell in self._sent.values())

    def _take_sent(self) -> list[Cell]:
        cells = list(self._sent.values())
        self._sent.clear()
        if cells:
            self.km.execution_state = "idle"
        return cells

    # ------------------------------------------------------------------ to the kernel and back
    def _wake(self) -> None:
        """See to it that every client hears the kernel, then open."""
        if self._waking is None or self._waking.done():
            self._waking = asyncio.get_running_loop().create_task(self._awaken())

    async def _awaken(self) -> None:
        # Again from the start when the kernel is replaced meanwhile: nobody else would open for the new one.
        while not self._closed and self._attached is not None and not await self._knock():
            pass
        self._pump()

    async def _knock(self) -> bool:
        """Open, once every client hears the kernel; False if that kernel went away before."""
        if not self._streams:
            self._connect()
        streams = self._streams
        until = time.monotonic() + AWAKE_S
        # What a kernel says before a client's subscription has reached it is lost to that client, so no cell may
        # run before. Control, not shell: it answers also while a cell runs.
        while time.monotonic() < until and any(not connection.hears for connection in self.connections):
            self.own.send(streams["control"], "kernel_info_request")
            await asyncio.sleep(WAKE_S)
            if self._streams is not streams:
                return False
        self._open = True
        return True

    def _connect(self) -> None:
        identity = f"gpufair-{uuid.uuid4().hex}".encode()  # one for all, so that input requests find us
        for channel in ("shell", "stdin", "control"):
            stream = getattr(self.km, f"connect_{channel}")(identity=identity)
            stream.socket.linger = 0  # what was not sent when we close must never run
            self._streams[channel] = stream
        self._streams["shell"].on_recv(self._replied)
        self._streams["stdin"].on_recv(lambda parts: self._forward("stdin", parts))
        self._streams["control"].on_recv(lambda _: None)

    def _shut(self) -> None:
        """Forget the kernel: its sockets, with all that they have not sent."""
        self._open, self._attached = False, None
        self._say_idle()
        for stream in self._streams.values():
            if not stream.closed():
                stream.close(linger=0)
        self._streams = {}
        for connection in self.connections:
            connection.hears = False

    def _pump(self) -> None:
        while self._open and self.session.serving and self._held and not self._main_busy():
            cell = self._held.popleft()
            self._held_bytes -= cell.size
            self._send(cell)
            self._changed()

    def _main_busy(self) -> bool:
        return any(not cell.header.get("subshell_id") for cell in self._sent.values())

    def _send(self, cell: Cell) -> None:
        self._sent[cell.msg_id] = cell
        self.own.send_raw(self._streams["shell"], cell.parts)

    def _replied(self, parts: list[bytes]) -> None:
        _, fed = self.own.feed_identities(parts)
        cell = self._sent.get(str(self.own.unpack(fed[2]).get("msg_id", "")))
        if cell is None:
            return
        content = self.own.unpack(fed[4])
        failed = content.get("status") == "error"
        if failed and content.get("ename") in INTERRUPTED and self.session.state == "checkpointing":
            cell.late, cell.late_s = parts, time.time()
            if cell.stop_on_error:
                self.abort("aborted")  # now: what is sent while the session is saved was sent by somebody who knew
            return
        del self._sent[cell.msg_id]
        self._last = cell
        self._deliver(cell, "shell", parts)
        if failed and cell.stop_on_error:
            self.abort("aborted")
        self._pump()

    def _release_late(self) -> None:
        for cell in [cell for cell in self._sent.values() if cell.late is not None]:
            del self._sent[cell.msg_id]
            self._deliver(cell, "shell", cell.late or [])

    def _forward(self, channel: str, parts: list[bytes]) -> None:
        _, fed = self.own.feed_identities(parts)
        cell = self._sent.get(str(self.own.unpack(fed[2]).get("msg_id", "")))
        if cell is not None:
            self._deliver(cell, channel, parts)

    def _deliver(self, cell: Cell, channel: str, parts: list[bytes]) -> None:
        connection = cell.origin
        if connection is not None and connection in self.connections and connection.channels:
            connection.handle_outgoing_message(channel, parts)
        else:
            self._left.append((cell.client, channel, parts))

    # ------------------------------------------------------------------ answers in the kernel's place
    def _refuse(self, cell: Cell, ename: str, evalue: str) -> None:
        self._say_error(cell, ename, evalue)
        self._answer(cell, {"status": "error", "ename": ename, "evalue": evalue, "traceback": []})

    def _say_error(self, cell: Cell, ename: str, evalue: str) -> None:
        traceback = [f"\x1b[0;31m{ename}\x1b[0m: {evalue}"]
        self._say(cell, "iopub", "error", {"ename": ename, "evalue": evalue, "traceback": traceback})

    def _answer(self, cell: Cell, content: dict[str, Any]) -> None:
        self._say(cell, "shell", "execute_reply", content)
        self._say(cell, "iopub", "status", {"execution_state": "idle"})

    def _say(self, cell: Cell, channel: str, kind: str, content: dict[str, Any]) -> None:
        """To the one who asked; outputs to all, as a kernel's are."""
        if channel == "iopub":
            for connection in tuple(self.connections):
                connection.say(channel, kind, content, cell.header)
        elif cell.origin is not None and cell.origin in self.connections:
            cell.origin.say(channel, kind, content, cell.header)
        else:
            message = self.own.msg(kind, content=content, parent=cell.header)
            self._left.append((cell.client, channel, self.own.serialize(message)))

    # ------------------------------------------------------------------ touching a parked session resumes it
    def _touch(self) -> None:
        if self.session.state == "parked" and (self._touching is None or self._touching.done()):
            self._touching = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        while self._held and self.session.state == "parked" and not self._closed:
            try:
                await on_io(self.session.resume())
            except Refused as err:
                if self.session.state == "parked":
                    self.abort("error", "NotResumed", f"The session could not be resumed, so this cell was not run: {err}")
                return
            except GpufairError as err:
                self.km.log.warning("session %s could not be resumed yet: %s", self.session.kernel_id, err)
            await asyncio.sleep(TOUCH_AGAIN_S)
