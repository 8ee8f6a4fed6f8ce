"""Kernels of the scheduler, as Jupyter's kernel managers see them: started at once, whatever the queue says.

The workload has the kernel's id. Jupyter gets the ports of a relay; when and where a kernel stands behind them is the
scheduler's business. No method blocks the caller's loop or waits for a kernel.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Float, Integer, Unicode

from gpufair.client import AsyncClient
from gpufair.core.errors import GpufairError
from jupyter_gpufair import compat
from jupyter_gpufair.control import interrupt_through
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.launch import hooks_of, kernel_launch, saves_itself
from jupyter_gpufair.relay import CHANNELS, HOST
from jupyter_gpufair.session import Session
from jupyter_gpufair.sessions import sessions
from jupyter_gpufair.wish import wish_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_gpufair.front import Front
    from jupyter_gpufair.held import Gate

# 5 s: ending a session is one request; a service that cannot take it is told again as soon as it answers.
STOP_S = 5.0
DIED = 1


class LaunchFailed(GpufairError):
    """A kernel could not be handed to the scheduler. The text is shown to the user."""


class GpufairProvisioner(KernelProvisionerBase):
    """Entry point ``gpufair-provisioner``. Its traits are set by a kernelspec's ``metadata.kernel_provisioner.config``."""

    profile = Unicode(None, allow_none=True, config=True, help="Profile of the scheduler's configuration.")
    allocation = Unicode(None, allow_none=True, config=True, help="Allocation to charge, in place of the profile's.")
    gpus = Integer(None, allow_none=True, config=True, help="GPUs per node, in place of the profile's.")
    nodes = Integer(None, allow_none=True, config=True, help="Nodes, in place of the profile's.")
    gpu_type = Unicode(None, allow_none=True, config=True, help="GPU type, in place of the profile's.")
    min_runtime_s = Float(None, allow_none=True, config=True, help="Protected seconds, in place of the profile's.")
    priority = Integer(None, allow_none=True, config=True, help="Priority inside the allocation.")
    kind = Unicode(None, allow_none=True, config=True, help="session or batch, in place of the profile's.")

    session: Session | None = None
    gate: Gate | None = None  # cells that wait; only under a Jupyter server, made by the websocket class
    front: Front | None = None  # elsewhere clients find this in the place of the relay, with a gate in it

    _over = False  # asked to end: as far as Jupyter is concerned there is no process any more
    _leaving = False  # a shutdown was asked for
    _cwd = ""

    # ------------------------------------------------------------------ is it there?
    @property
    def has_process(self) -> bool:
        """Whether a session is managed; asserted by ``KernelManager`` after each ``launch_kernel``."""
        return self.session is not None and not self._over

    async def poll(self) -> int | None:
        """None while the session lives, in whatever state; else an exit code. Called by ``KernelManager.is_alive``."""
        if self.session is None or self._over:
            return 0
        over = self.session.ended or self.session.kernel_died
        return DIED if over and (self._leaving or self.front is None or self.front.over) else None

    async def wait(self) -> int | None:
        """Called by ``KernelManager`` once ``poll`` said that it is over."""
        self._over = True
        return 0

    # ------------------------------------------------------------------ start
    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Called by ``KernelManager.pre_start_kernel``; ``cmd`` keeps ``{connection_file}`` for the supervisor."""
        extra: list[str] = kwargs.pop("extra_arguments", [])
        kwargs.pop("transport_encryption", None)
        self._cwd = str(kwargs.get("cwd") or Path.cwd())
        env = kwargs.get("env")
        return await super().pre_launch(
            cmd=[*self.kernel_spec.argv, *extra], given_env=env or dict(os.environ), **kwargs
        )

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Submit the session, find it, or restart its kernel; returns where the relay listens.

        Raises: LaunchFailed: The scheduler refused it or cannot be reached.
        """
        again = self.session is not None
        try:
            if self.session is None:
                self.session = await on_io(sessions().open(self.kernel_id))
            if again:
                await on_io(self.session.restart())
            elif self.kernel_id in adopting:
                await on_io(self.session.adopt())
            else:
                env = kwargs["given_env"]
                # What the notebook asks for goes before its profile.
                wish = await asyncio.to_thread(wish_of, env.get("JPY_SESSION_NAME", ""))
                await on_io(self.session.submit(self._launch(cmd, env), self._spec(env) | wish))
        except GpufairError as err:
            if not again and self.session is not None:
                await on_io(sessions().forget(self.session))
                self.session = None
            raise LaunchFailed(f"the kernel was not started: {err}") from err
        await self._connected(self.session)
        return self.connection_info

    async def _connected(self, session: Session) -> None:
        self._over = self._leaving = False
        if self.front is None and not sessions().holder:
            self.front = await on_io(self._open_front(session))
        ports = session.relay.ports if self.front is None else self.front.ports
        self.connection_info = self._connection(session, ports)
        if self.parent is not None:
            self.parent.session.key = session.key.encode()
            compat.pin_ports(self.parent, ports)

    async def _open_front(self, session: Session) -> Front:
        from jupyter_gpufair.front import Front  # noqa: PLC0415 - not needed under a server

        return Front(session, self.kernel_spec.language if self.kernel_spec else "python")

    async def _at_gate(self, act: Callable[[Gate], None]) -> None:
        if self.gate is not None:
            act(self.gate)
        if self.front is not None:
            await on_io(self.front.at_gate(act))

    def _launch(self, cmd: list[str], env: dict[str, str]) -> dict[str, Any]:
        launch, left_out = kernel_launch(
            cmd,
            self.kernel_spec.env,
            cwd=self._cwd,
            kernel_name=self._kernel_name,
            env=env,
            resource_dir=self.kernel_spec.resource_dir,
            local=sessions().link.local,
        )
        if left_out:
            self.log.warning(
                "kernelspec %s sets %s, which looks secret: it is not sent to the scheduler, whose journal would keep it",
                self._kernel_name,
                ", ".join(left_out),
            )
        return launch | hooks_of(self.kernel_spec.metadata)

    def _spec(self, env: dict[str, str]) -> dict[str, Any]:
        names = ("profile", "allocation", "gpus", "nodes", "gpu_type", "min_runtime_s", "priority", "kind")
        notebook = env.get("JPY_SESSION_NAME", "")
        return {name: getattr(self, name) for name in names} | {
            "name": Path(notebook).name or None,
            "user": sessions().link.user,
            "resumable": None if saves_itself(self.kernel_spec.argv, self.kernel_spec.metadata) else False,
        }

    @property
    def _kernel_name(self) -> str:
        return str(getattr(self.parent, "kernel_name", "") or "")

    @staticmethod
    def _connection(session: Session, ports: dict[str, int]) -> KernelConnectionInfo:
        info: KernelConnectionInfo = {
            "transport": "tcp",
            "ip": HOST,
            "key": session.key.encode(),  # type: ignore[typeddict-item]  # bytes, as KernelManager.get_connection_info has it
            "signature_scheme": "hmac-sha256",
        }
        info.update({f"{channel}_port": ports[channel] for channel in CHANNELS})  # type: ignore[typeddict-item]
        return info

    # ------------------------------------------------------------------ interrupt
    async def send_signal(self, signum: int) -> None:
        """Called by ``KernelManager``: SIGINT for the interrupt button, and first of all at each shutdown and restart."""
        session = self.session
        if session is None or sessions().stopping:
            return
        if signum in {signal.SIGTERM, signal.SIGKILL}:
            self._over = True
        elif signum == signal.SIGINT:
            await self._interrupt(session)
        elif signum != 0:
            self.log.warning("signal %d does not reach a kernel of the scheduler; only interrupts do", signum)

    async def _interrupt(self, session: Session) -> None:
        # A restart begins with an interrupt too. That of a dead kernel leaves alone what was sent since it died.
        restarting = self.parent is not None and self.parent.shutting_down
        if not (restarting and session.kernel_died):
            await self._at_gate(lambda gate: gate.withdraw())
        if session.attached is None or session.state not in {"running", "checkpointing"}:
            return  # no kernel to interrupt; what waited was given up above
        if await on_io(interrupt_through(session.relay, session.key)):
            return
        try:
            await on_io(session.ask(AsyncClient.interrupt))
        except GpufairError as err:
            self.log.warning("kernel %s could not be interrupted: %s", self.kernel_id, err)

    # ------------------------------------------------------------------ end
    async def shutdown_requested(self, restart: bool = False) -> None:
        """Called by ``KernelManager.request_shutdown``, after it has sent ``shutdown_request`` on the control channel."""
        self._leaving = True
        if not self._may_answer():
            self._over = True  # nobody there to shut down politely: go on at once

    async def terminate(self, restart: bool = False) -> None:
        """Called by ``KernelManager.finish_shutdown`` when the kernel did not go by itself. What follows ends it."""
        self._over = True

    async def kill(self, restart: bool = False) -> None:
        """Called by ``KernelManager``. Its ``restart`` cannot be relied on: ``cleanup`` or ``launch_kernel`` decides."""
        self._over = True

    async def cleanup(self, restart: bool = False) -> None:
        """Called by ``KernelManager.cleanup_resources``: the one place that knows a shutdown from a restart."""
        session = self.session
        if restart:
            await self._at_gate(lambda gate: gate.restarting())
            return
        self._over = True
        if self.front is not None:
            await on_io(self.front.close())
            self.front = None
        if self.gate is not None:
            self.gate.close(keep=sessions().stopping)
            self.gate = None
        self.session = None
        if session is None:
            return
        try:
            if not sessions().stopping and not session.ended:
                await asyncio.wait_for(on_io(session.stop()), STOP_S)
        except (GpufairError, TimeoutError) as err:
            sessions().unstopped.add(session.kernel_id)
            self.log.error(
                "session %s is not ended yet: %s. It will be as soon as the service answers; until then it may hold GPUs",
                self.kernel_id,
                str(err) or f"no answer in {STOP_S:g} s",
            )
        finally:
            await on_io(sessions().forget(session))

    def _may_answer(self) -> bool:
        session = self.session
        return session is not None and session.attached is not None and not sessions().stopping

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """No kernel, no waiting."""
        return recommended if self._may_answer() and not self._over else 0.0

    # ------------------------------------------------------------------ persistence
    async def get_provisioner_info(self) -> dict[str, Any]:
        """What ``load_provisioner_info`` needs, JSON-able. It holds no key: the service tells that to the owner."""
        info = await super().get_provisioner_info()
        info["connection_info"] = {k: v for k, v in self.connection_info.items() if k != "key"}
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Take up the session that another process managed. Ports are new: a relay belongs to its process."""
        self.kernel_id = provisioner_info["kernel_id"]
        self.session = await on_io(sessions().open(str(self.kernel_id)))
        await on_io(self.session.adopt())
        await self._connected(self.session)

    def resolve_path(self, path: str) -> str | None:
        """As the local provisioner does, where kernels share this machine's files."""
        if not sessions().link.local:
            return None
        found = Path(self._cwd or ".", Path(path).expanduser()).resolve()
        return found.as_posix() if found.exists() else None


adopting: set[str] = set()  # kernels that exist and are being taken up again; filled by ``reattach``
