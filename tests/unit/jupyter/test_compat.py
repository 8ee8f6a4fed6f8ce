"""The private names of Jupyter that we use are still there and still mean the same."""

from __future__ import annotations

import inspect
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.ioloop.manager import AsyncIOLoopKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_client.restarter import KernelRestarter
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError

from jupyter_gpufair import compat
from jupyter_gpufair.manager import GpufairKernelManager


async def test_register_websocket_session() -> None:
    assert inspect.iscoroutinefunction(ZMQChannelsWebsocketConnection._register_session)
    # It is what `prepare` begins with, and it waits for nothing.
    source = inspect.getsource(ZMQChannelsWebsocketConnection.prepare)
    assert source.index("_register_session") < source.index("await ready")

    class Connection:
        registered = False

        async def _register_session(self) -> None:
            self.registered = True

    connection = Connection()
    await compat.register_websocket_session(connection)
    assert connection.registered


def test_declare_dead_tells_those_who_listen_for_it() -> None:
    told: list[str] = []

    class Restarter(KernelRestarter):
        def stop(self) -> None:
            told.append("stopped")

    manager: Any = AsyncIOLoopKernelManager()
    assert compat.declare_dead(manager) is False
    restarter: Any = Restarter(kernel_manager=manager)
    restarter.add_callback(lambda: told.append("dead"), "dead")
    # The trait wants an IOLoop restarter, which needs a running loop.
    manager._trait_values["_restarter"] = restarter
    assert compat.declare_dead(manager) is True
    assert told == ["stopped", "dead"]


def test_pinned_ports_outlive_a_restart_with_new_ports() -> None:
    """What `restart_kernel(newports=True)` calls leaves them alone; without the pin it forgets them."""
    ports = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
    manager = KernelManager()
    manager.load_connection_info({f"{name}_port": port for name, port in ports.items()})  # type: ignore[arg-type]
    manager.cleanup_random_ports()
    assert manager.ports == [0, 0, 0, 0, 0]
    compat.pin_ports(manager, ports)
    manager.cleanup_random_ports()
    assert manager.ports == [1, 3, 2, 5, 4]
    assert "cleanup_random_ports" in inspect.getsource(KernelManager._async_restart_kernel)


def test_nothing_private_is_used_elsewhere() -> None:
    """Ruff's SLF001 finds it; so each exception to it must be ours."""
    from pathlib import Path

    import jupyter_gpufair

    for file in Path(jupyter_gpufair.__file__).parent.glob("*.py"):
        excepted = [line for line in file.read_text().splitlines() if "noqa: SLF001" in line]
        assert file.name == "compat.py" or all("relay" in line for line in excepted), (file.name, excepted)


def test_hidden_kernelspecs_are_in_no_list(tmp_path: Path) -> None:
    """A picker must not offer what the service has no profile for; what it hides changes with the service."""
    for name in ("gpufair-1gpu", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.json").write_text('{"argv": ["x"], "display_name": "x", "language": "python"}')
    manager = KernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    hidden: set[str] = set()
    compat.hide_kernelspecs(manager, lambda: hidden)
    assert set(manager.get_all_specs()) == {"gpufair-1gpu", "mine"}
    hidden.add("gpufair-1gpu")
    assert set(manager.get_all_specs()) == {"mine"}


async def test_a_start_that_failed_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    """Ctrl-C must end a server in which somebody's kernel was refused: the stock manager fails there and hangs."""
    (tmp_path / "broken").mkdir()
    broken = {"argv": [str(tmp_path / "no-such-program")], "display_name": "x", "language": "python"}
    (tmp_path / "broken" / "kernel.json").write_text(json.dumps(broken))
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    for kind, ends in ((AsyncMappingKernelManager, False), (GpufairKernelManager, True)):
        manager = kind(kernel_spec_manager=specs, root_dir=str(tmp_path), connection_dir=str(tmp_path))
        with pytest.raises(FileNotFoundError):
            await manager.start_kernel(kernel_name="broken")
        with nullcontext() if ends else pytest.raises(HTTPError):  # no longer? then ours may go
            await manager.shutdown_all()
