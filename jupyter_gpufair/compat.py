"""Every private name of Jupyter that we use, and nothing else. ``tests/unit/jupyter/test_compat.py`` fails when one is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any


async def register_websocket_session(connection: Any) -> None:
    """Note an open websocket under its session id, and close a stale one of the same id. (jupyter_server 2.14-2.21)

    ``ZMQChannelsWebsocketConnection.prepare`` does this and then waits for the kernel, which ours must not.
    """
    await connection._register_session()  # noqa: SLF001


def pin_ports(kernel_manager: Any, ports: Mapping[str, int]) -> None:
    """Give a kernel manager ports that a restart does not forget. (jupyter_client 8)

    A first autorestart asks for "new random ports" and sets all to 0 until the launch returns; a websocket that opens
    in between would connect to port 0 and never hear the kernel. Ours never change.
    """
    for channel, port in ports.items():
        setattr(kernel_manager, f"{channel}_port", port)
    kernel_manager._random_port_names = []  # noqa: SLF001


def hide_kernelspecs(manager: Any, names: Callable[[], Collection[str]]) -> None:
    """Leave ``names`` out of what a kernelspec manager of any class lists. (jupyter_client 8)

    All lists are made of ``find_kernel_specs``. A hidden one can still be started by its name.
    """
    find = manager.find_kernel_specs

    def shown() -> dict[str, str]:
        hidden = names()
        return {name: folder for name, folder in find().items() if name not in hidden}

    manager.find_kernel_specs = shown


def forget_failed_starts(manager: Any) -> None:
    """Drop starts that failed, or have not come to anything yet, from a multi-kernel manager. (jupyter_client 8)

    It keeps them as pending for ever; ``shutdown_all`` then asks for kernels that are not there, fails, and the server
    never ends. A refused budget or profile is an ordinary answer of ours, so this must not be.
    """
    pending = manager._pending_kernels  # noqa: SLF001
    for kernel_id in [one for one in pending if one not in manager._kernels]:  # noqa: SLF001
        del pending[kernel_id]


def offline_buffer(manager: Any, kernel_id: str) -> dict[str, Any] | None:
    """What a server keeps of a kernel's messages while its only page is away. (jupyter_server 2.14-2.21)

    ``buffer`` in it is a list without bounds, to which each message is appended as (channel, frames).
    """
    found: dict[str, Any] | None = manager._kernel_buffers.get(kernel_id)  # noqa: SLF001
    return found


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
