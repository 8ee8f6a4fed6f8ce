"""Writes down every IOPub message of one kernel, durably and in order, and tells when cells run.

A thread of its own takes messages from the socket; another one makes them durable. Nothing here slows the kernel:
our end of the socket has no limit, so the kernel never has to drop a message for us.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from gpufair.node.files import open_append
from gpufair.node.messages import Signer
from gpufair.node.record_lines import ENDED, TRUNCATED, line, marker

LIMIT_BYTES = 256 << 20  # of one file; a kernel that prints for a week must not fill the node's disk
_MARGIN_BYTES = 16 << 20  # beyond the limit: state and errors only, so that cells are still seen to end
_GATHER_S = 0.005  # messages come in bunches; waking once for all of them leaves the processor to the kernel
_SYNC_S = 0.5
_SYNC_IDLE_S = 0.1
MAX_CELLS = 1_000  # kept in memory, to say which of them no checkpoint holds
_LINE_CHARS = 80
_OUTPUTS = frozenset({"stream", "display_data", "update_display_data", "execute_result", "comm_msg", "comm_open"})
_log = logging.getLogger(__name__)


class Cell(NamedTuple):
    """A cell that has begun. ``line`` is its first one."""

    number: int
    line: str


class RecordFile:
    """One append-only file of messages, a JSON object a line, with a size limit and a truthful end."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = open_append(path)
        self._size = os.fstat(self._fd).st_size
        self._limit = limit_bytes
        self._truncated = False
        self._broken = False  # the last write failed half-way

    def append(self, body: Sequence[bytes]) -> None:
        """Write one message: header, parent header, metadata, content, then buffers (of which only the count is kept)."""
        if self._size > self._limit and (not self._truncated or self._refused(body)):
            if self._truncated:
                return
            self._truncated = True
            self._write(marker(TRUNCATED, {"limit_bytes": self._limit}, parent=body[1]))
            if self._refused(body):
                return
        self._write(line(body))

    def _refused(self, body: Sequence[bytes]) -> bool:
        if self._size > self._limit + _MARGIN_BYTES or len(body[3]) > 1 << 20:
            return True
        with suppress(ValueError):
            return json.loads(body[0]).get("msg_type") in _OUTPUTS
        return True

    def _write(self, data: bytes) -> None:
        if self._broken:
            data = b"\n" + data  # so that the torn line spoils itself only
        try:
            written = os.write(self._fd, data)
        except OSError as err:
            if not self._broken:
                _log.warning("outputs are not recorded: %s", err)
            self._broken = True
            return
        self._broken = written < len(data)
        self._size += written

    def sync(self) -> None:
        """Wait until all is on the disk."""
        try:
            os.fsync(self._fd)
        except OSError as err:
            _log.warning("recorded outputs may not be durable: %s", err)

    def close(self, *, ended: bool) -> None:
        """Write that the kernel has ended, if so, and close."""
        if ended:
            self._write(marker(ENDED, {}))
        self.sync()
        os.close(self._fd)


class Recorder:
    """Subscribes to a kernel's IOPub channel until ``close``."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: str,
        key: str,
        path: Path,
        on_busy: Callable[[bool], None],
        on_ask: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Both are called in the recording thread.

        Args:
            on_busy: True when the first cell begins, False when the last ends.
            on_ask: What the notebook itself asks for (``%gpufair checkpoint``), by an output with this in its metadata.
        """
        self._signer = Signer(key)
        self._file = RecordFile(path)
        self._on_busy, self._on_ask = on_busy, on_ask
        self._running: set[str] = set()
        self.cells: deque[Cell] = deque(maxlen=MAX_CELLS)  # that have begun, oldest first; read it from any thread
        self._dirty = threading.Event()
        self._idle = threading.Event()
        self._closing = threading.Event()
        self.heard = False  # the kernel has said anything
        self._socket: zmq.Socket[bytes] = context.socket(zmq.SUB)
        self._socket.linger = 0
        self._socket.rcvhwm = 0
        self._socket.reconnect_ivl = 10
        self._socket.subscribe(b"")
        self._socket.connect(address)
        self._wake_us: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._wake: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        name = f"inproc://recorder-{id(self)}"
        self._wake_us.bind(name)
        self._wake.connect(name)
        self._reading = threading.Thread(target=self._read, name="record", daemon=True)
        self._syncing = threading.Thread(target=self._sync, name="record-sync", daemon=True)
        self._reading.start()
        self._syncing.start()

    def close(self) -> None:
        """Take what has arrived, make it durable, stop. The kernel must be gone. Blocks for a moment."""
        self._wake.send(b"")
        self._reading.join()
        self._closing.set()
        self._idle.set()
        self._dirty.set()
        self._syncing.join()
        self._wake.close(0)
        self._file.close(ended=True)

    def _read(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_us, zmq.POLLIN)
        closing = False
        while True:
            ready = dict(poller.poll(50 if closing else None))
            closing = closing or self._wake_us in ready
            if self._socket in ready:
                if not closing:
                    time.sleep(_GATHER_S)
                self._drain()
            elif closing:
                break
            if self._wake_us in ready:
                self._wake_us.recv()
                poller.unregister(self._wake_us)
        self._socket.close(0)
        self._wake_us.close(0)

    def _drain(self) -> None:
        for _ in range(256):  # then look whether we are to stop
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            body = self._signer.split(frames)
            if body is None:
                continue
            self.heard = True
            if b'"iopub_welcome"' in body[0]:
                continue
            self._file.append(body)
            if b'"status"' in body[0]:
                self._status(body)
            elif b'"execute_input"' in body[0]:
                self._begun(body)
            elif b'"ask"' in body[3] and (b'"display_data"' in body[0] or b'"gpufair_ask"' in body[0]):
                self._asked(body)
        self._dirty.set()

    def _asked(self, body: Sequence[bytes]) -> None:
        with suppress(ValueError, TypeError, KeyError):
            told = json.loads(body[3])["metadata"]["gpufair"]["ask"]
            if isinstance(told, str):
                self._on_ask(told)

    def _begun(self, body: Sequence[bytes]) -> None:
        with suppress(ValueError, TypeError, KeyError):
            content = json.loads(body[3])
            line = next((text.strip() for text in str(content["code"]).splitlines() if text.strip()), "")
            self.cells.append(Cell(int(content["execution_count"]), line[:_LINE_CHARS]))

    def _status(self, body: Sequence[bytes]) -> None:
        try:
            parent, state = json.loads(body[1]), json.loads(body[3]).get("execution_state")
        except ValueError:
            return
        # Completion, inspection and the control channel make a kernel busy too, but nobody waits for those.
        if parent.get("msg_type") != "execute_request":
            return
        before = bool(self._running)
        if state == "busy":
            self._running.add(parent.get("msg_id", ""))
        elif state == "idle":
            self._running.discard(parent.get("msg_id", ""))
        if before != bool(self._running):
            self._on_busy(not before)
            if before:
                self._idle.set()

    def _sync(self) -> None:
        while True:
            self._dirty.wait()
            if self._closing.is_set():
                return
            self._dirty.clear()
            if self._idle.wait(_SYNC_S):
                self._closing.wait(_SYNC_IDLE_S)  # a notebook of 500 small cells is no reason for 500 fsyncs
                self._idle.clear()
            self._file.sync()
