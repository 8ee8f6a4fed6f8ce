"""The workload's first process: a Jupyter kernel on fresh ports, or a command.

The supervisor imports this before anything else and starts the child at once, so it stays with cheap modules.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.node.files import open_append
from gpufair.node.logs import log_path
from gpufair.node.processes import Proc, death_signal, identify

CONNECTION_FILE = "kernel.json"
NOTICE_FILE = "notice.json"
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_PORTS_FROM = 15_000


class Child:
    """A started process. ``generation`` counts the kernels of one incarnation from 1."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        generation: int,
        connection: dict[str, Any],
        log: Path,
        notice_fd: int | None = None,
    ) -> None:
        self.popen = popen
        self.notice_fd = notice_fd  # what is written here the process reads; commands only
        self.generation = generation
        self.connection = connection  # without the key
        self.log = log
        self.identity = identify(popen.pid) or Proc(popen.pid, 0)
        self.image = False  # it came out of a process image
        self.problem = ""  # why it did not, where it should have
        self.ending = False  # we end it ourselves: its death is no news

    @property
    def pid(self) -> int:
        return self.popen.pid


def start_kernel(start: dict[str, Any], folder: Path, generation: int) -> Child:
    """Write the connection file and start the kernel.

    Args:
        start: Content of ``start.json``.
        folder: The supervisor's folder.

    Raises:
        OSError: It could not be started (no such program, say).
    """
    problem = ""
    if generation == 1 and start.get("image"):
        from gpufair.node import process_image  # noqa: PLC0415  # rarely needed

        try:
            argv = process_image.restore_command(start["args"])
        except process_image.ImageFailed as err:
            problem = str(err)  # a new kernel, then; the image stays where it is
        else:
            connection = dict(start["image"]["connection"])
            woken = _spawn(argv, dict(start["env"]), "", folder / "kernel.log", generation, connection)
            woken.image = True
            return woken
    launch = start["args"]["launch"]
    connection = {"ip": "127.0.0.1", **dict(zip(PORTS, free_ports(len(PORTS)), strict=True))}
    path = folder / CONNECTION_FILE
    text = json.dumps(
        {
            **connection,
            "key": start["args"]["kernel_key"],
            "transport": "tcp",
            "signature_scheme": "hmac-sha256",
            "kernel_name": "",
        }
    )
    # Not durable on purpose: a machine that crashes takes the kernel with it, and an fsync costs each start dearly.
    temporary = path.with_suffix(".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    temporary.rename(path)
    argv = [part.replace("{connection_file}", str(path)) for part in launch["argv"]]
    env = dict(start["env"])
    env["JPY_PARENT_PID"] = str(os.getpid())
    child = _spawn(argv, env, launch.get("cwd") or "", folder / "kernel.log", generation, connection)
    child.problem = problem
    return child


def start_command(start: dict[str, Any], folder: Path) -> Child:
    """Start a command; its output goes to its log (``gpufair.node.logs``). Raises ``OSError`` like ``start_kernel``.

    It finds a notice of a preemption in the file ``GPUFAIR_NOTICE_FILE`` and on the descriptor ``GPUFAIR_NOTICE_FD``.
    """
    launch, env = start["args"]["launch"], dict(start["env"])
    incarnation = int(start["incarnation"])
    log = log_path(Path(start["args"]["record_dir"]), incarnation, int(env.get("GPUFAIR_NODE_RANK", 0)))
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if incarnation > 1:
        with open(open_append(log), "ab") as out:
            out.write(f"gpufair: started again on {env.get('GPUFAIR_NODE', 'this node')}\n".encode())
    theirs, ours = os.pipe()
    try:
        env |= {"GPUFAIR_NOTICE_FD": str(theirs), "GPUFAIR_NOTICE_FILE": str(folder / NOTICE_FILE)}
        cwd = launch.get("cwd") or str(folder)
        return _spawn(launch["argv"], env, cwd, log, 1, {}, pass_fd=theirs, notice_fd=ours)
    except OSError as err:
        os.close(ours)
        with suppress(OSError), log.open("ab") as out:  # where its owner looks first
            out.write(f"gpufair: {launch['argv'][0]!r} could not be started: {err.strerror or err}\n".encode())
        raise
    finally:
        os.close(theirs)


def _spawn(
    argv: list[str],
    env: dict[str, str],
    cwd: str,
    log: Path,
    generation: int,
    connection: dict[str, Any],
    *,
    pass_fd: int | None = None,
    notice_fd: int | None = None,
) -> Child:
    argv = [sys.executable if argv[0] in {"python", "python3"} else argv[0], *argv[1:]]
    with open(open_append(log), "ab") as out:
        if not os.path.isdir(cwd):  # noqa: PTH112  # an empty path is a folder to pathlib
            home = os.path.expanduser("~")  # noqa: PTH111
            out.write(f"gpufair: there is no folder {cwd!r} on this node; starting in {home!r}\n".encode())
            out.flush()
            cwd = home
        popen = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if pass_fd is None else (pass_fd,),
            preexec_fn=death_signal(),  # noqa: PLW1509  # called in the main thread, before or between other threads' work
        )
    return Child(popen, generation, connection, log, notice_fd)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface on which nobody listens now.

    Taken from below the range that the system uses for outgoing connections. Inside it, a client that waits for the
    kernel to listen could be given that very port as its own end and be connected to itself.
    """
    try:
        upper = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        upper = 32_768
    if upper - _PORTS_FROM < 1_000:
        upper = 65_535
    held: dict[int, socket.socket] = {}
    try:
        while len(held) < count:
            port = _PORTS_FROM + int.from_bytes(os.urandom(4), "little") % (upper - _PORTS_FROM)
            probe = socket.socket()
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probe.close()
                continue
            held.setdefault(port, probe)
        return list(held)
    finally:
        for probe in held.values():
            probe.close()
