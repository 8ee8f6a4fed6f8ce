"""A node that is another machine: its agent has a folder of its own, and its kernels are reached through TLS only.

Here both machines are this one; nothing of the node's folder is read by the service or by Jupyter.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from gpufair.client import Client
from gpufair.wire import tunnel_proof
from tests.integration.jupyter.real import CONFIG, end_all, real_service, wait_until
from tests.integration.jupyter.server import Tab

FAR = CONFIG + '\n[[node]]\nname = "far"\nremote = true\ngpu_type = "virtual"\n'


@contextmanager
def remote_agent(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """`gpufair agent far`, as an operator starts it on that machine."""
    token, folder = home / "far.token", home / "far"
    gpufair = [sys.executable, "-m", "gpufair.cli"]
    given = [*gpufair, "nodes", "token", "far", "--output", str(token), "--state-dir", str(home / "gpufair")]
    assert subprocess.run(given, check=True, capture_output=True, text=True, timeout=60).stdout.startswith("the token of far")
    assert token.stat().st_mode & 0o077 == 0
    command = [*gpufair, "agent", "far", "--run-as", "agent", "--service", url, "--token-file", str(token), "--gpus", "1"]
    command += ["--host", "127.0.0.1", "--listen", "127.0.0.1", "--folder", str(folder)]
    with (home / "agent.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        end_all(folder)


def on(client: Client, node: str) -> bool:
    return any(one.name == node and one.state == "ready" for one in client.nodes())


def test_a_session_lives_on_another_machine_and_moves_home(tmp_path: Path) -> None:
    """It runs there, outlives its agent, is reached by nobody without its key, and comes back elsewhere with its variables."""
    with real_service(tmp_path, FAR) as (server, client):
        assert [node.name for node in client.nodes() if node.gpus] == ["node-1", "node-2"]
        with remote_agent(tmp_path, client.endpoint().url):
            wait_until(lambda: on(client, "far"), 60)
            for node in ("node-1", "node-2"):
                client.cordon(node)
            kernel = server.new("far.ipynb")
            with Tab(server, kernel) as tab:
                first = tab.run("import os\nx = [1, 2]\nprint(os.environ['GPUFAIR_NODE'])")
                assert tab.reply(first)["status"] == "ok"
                assert tab.text(first) == "far\n"
                # Its CPU pool listens on the service's machine: who asks reads why, and what to do.
                asked = tab.run("from gpufair.cpu import served\nserved.ask()")
                assert tab.reply(asked)["evalue"].startswith("the CPU pool of the scheduler service: it is reached on the service's")
                found = client.connection(kernel)
                refused(found.connection["via"], found.key)
                # Much output in one go passes, too.
                big = tab.run("print('y' * 700_000)")
                assert tab.reply(big)["status"] == "ok"
                assert len(tab.text(big)) == 700_001

                agents = [one for one in psutil.process_iter() if is_agent(one, tmp_path)]
                for one in agents:
                    one.kill()
                assert len(agents) == 1
                again = tab.run("x.append(3); print(x)")
                assert tab.reply(again)["status"] == "ok"
                assert tab.text(again) == "[1, 2, 3]\n"
                with remote_agent(tmp_path, client.endpoint().url):
                    assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
                    server.wait_for(kernel, "parked")
                    client.uncordon("node-1")
                    client.cordon("far")
                    last = tab.run("print(x, os.environ['GPUFAIR_NODE'])")
                    assert tab.reply(last)["status"] == "ok"
                    assert tab.text(last) == "[1, 2, 3] node-1\n"
            server.call("DELETE", f"/api/kernels/{kernel}")
            wait_until(lambda: not client.workload(kernel).live, 60)


def is_agent(process: psutil.Process, home: Path) -> bool:
    """Whether this is the agent of this test's node that is far."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return "agent" in command and str(home / "far") in command


def refused(via: dict[str, Any], key: str) -> None:
    """Nothing is passed on for a wrong proof, for another channel's, or for nonsense; the right one is let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    right = tunnel_proof(key, "shell", via["fingerprint"])
    for said, greeted in (
        ({"channel": "shell", "proof": right}, True),
        ({"channel": "iopub", "proof": right}, False),
        ({"channel": "shell", "proof": "0" * 64}, False),
        ({"channel": "shell", "proof": tunnel_proof(key, "shell", "0" * 64)}, False),
        ({"channel": "nothing", "proof": tunnel_proof(key, "nothing", via["fingerprint"])}, False),
        ([], False),
    ):
        plain = socket.create_connection((via["host"], via["port"]), timeout=20)
        with context.wrap_socket(plain) as tls:
            tls.sendall(json.dumps(said).encode() + b"\n")
            try:
                answer = tls.recv(1)  # ZMQ greets with 0xff
            except OSError:
                answer = b""
            assert answer == (b"\xff" if greeted else b""), said

