"""Interrupting a kernel through its control channel, without the detour over service and agent."""

from __future__ import annotations

import asyncio
import threading

import zmq
import zmq.asyncio
from jupyter_client.session import Session as JupyterSession

from jupyter_gpufair.relay import Relay

REPLY_S = 1.0  # the control thread answers in milliseconds, unless a C call holds the GIL

_local = threading.local()


def _context() -> zmq.asyncio.Context:
    if not hasattr(_local, "context"):
        _local.context = zmq.asyncio.Context()
    context: zmq.asyncio.Context = _local.context
    return context


async def interrupt_through(relay: Relay, key: str) -> bool:
    """Send ``interrupt_request``; whether the kernel said in time that it was done. Runs in the io thread."""
    session = JupyterSession(key=key.encode())
    socket = _context().socket(zmq.DEALER)
    socket.linger = 0
    try:
        socket.connect(f"tcp://{relay.host}:{relay.ports['control']}")
        message = session.serialize(session.msg("interrupt_request", content={}))
        await socket.send_multipart(message)
        _, parts = session.feed_identities(await asyncio.wait_for(socket.recv_multipart(), REPLY_S), copy=True)
        reply = session.deserialize(parts)
    except (TimeoutError, ValueError):
        return False
    finally:
        socket.close()
    return bool(reply["msg_type"] == "interrupt_reply" and reply["content"].get("status", "ok") == "ok")
