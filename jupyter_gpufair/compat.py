"""Every private name of Jupyter that we use, and nothing else. ``tests/unit/jupyter/test_compat.py`` fails when one is gone."""

from __future__ import annotations

from typing import Any


async def register_websocket_session(connection: Any) -> None:
    """Note an open websocket under its session id, and close a stale one of the same id. (jupyter_server 2.14-2.21)

    ``ZMQChannelsWebsocketConnection.prepare`` does this and then waits for the kernel, which ours must not.
    """
    await connection._register_session()  # noqa: SLF001


def declare_dead(kernel_manager: Any) -> bool:
    """Have clients told that the kernel is dead for good, and the server forget it. (jupyter_client 8)

    A restarter comes to that conclusion only after five restarts, which a session that is over does not allow.
    Returns: Whether there was a restarter to do it.
    """
    restarter = kernel_manager._restarter  # noqa: SLF001
    if restarter is None:
        return False
    kernel_manager.stop_restarter()
    restarter._fire_callbacks("dead")  # noqa: SLF001
    return True
