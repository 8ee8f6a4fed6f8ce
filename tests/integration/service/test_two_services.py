"""Two services on one PostgreSQL: one leads, the other takes over within ten seconds, and there are never two."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gpufair.client import Client, ClientError
from gpufair.client.exchange import Patience
from gpufair.service.archives.upkeep import check
from gpufair.service.storage.database import Place
from tests.integration.service.rig import CONFIG, Rig, until
from tests.postgres import postgres
from tests.unit.service.test_leading_pod import ApiServer, api_server

TAKEOVER_S = 10.0


class Pair:
    """Two services with one state folder and one database, on ports of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.rig = Rig(folder, CONFIG + f'\n[store]\nurl = "{url}"\n', embedded=False)
        self.ports = [free_port(), free_port()]
        self.processes: list[subprocess.Popen[bytes] | None] = [None, None]

    def start(self, one: int, **environ: str) -> None:
        with (self.rig.folder / f"service{one}.log").open("ab") as log:
            command = self.rig.command("--port", str(self.ports[one]))
            env = {**os.environ, **environ}
            self.processes[one] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.rig.folder, env=env)

    def signal(self, one: int, number: signal.Signals) -> None:
        process = self.processes[one]
        assert process is not None
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait(30)

    def ready(self, one: int) -> int:
        """The status of its readiness; 0: it does not answer."""
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.address(one)}/readyz", timeout=2).status_code
        return 0

    def address(self, one: int) -> str:
        return f"http://127.0.0.1:{self.ports[one]}"

    def leads(self, one: int) -> None:
        until(f"service {one} to lead: {self.log()}", lambda: self.ready(one) == 200, 60)

    def stands_by(self, one: int) -> None:
        until(f"service {one} to stand by: {self.log()}", lambda: self.ready(one) == 503, 60)

    def client(self) -> Client:
        token = json.loads((self.rig.state / "service.json").read_text())["token"]
        patience = Patience(timeout_s=5.0)  # a stopped service takes the question and says nothing
        return Client(url=",".join(self.address(one) for one in (0, 1)), token=token, patience=patience)

    def log(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.rig.folder.glob("service?.log")))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with postgres() as server:
        pair = Pair(tmp_path, server.database())
        try:
            yield pair
        finally:
            for process in pair.processes:
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    process.wait(30)
            pair.rig.clean()


def takes_work(pair: Pair, client: Client, name: str) -> None:
    """A submission is taken in, asked as a user does: the client tries again by itself."""

    def taken() -> bool:
        with suppress(ClientError):
            client.submit({"type": "command", "argv": ["true"], "cwd": str(pair.rig.folder)},
                          id=name, kind="batch", allocation="a", gpus=1)  # fmt: skip
            return True
        return False

    until(f"{name} to be taken in: {pair.log()}", taken, 60)


def submit_directly(address: str, token: str) -> int:
    """The answer's status; 0: the connection ended without one."""
    body = {"id": "split", "kind": "batch", "allocation": "a", "gpus": 1, "launch": {"type": "command", "argv": ["true"]}}
    headers = {"Authorization": f"Bearer {token}"}
    with suppress(httpx.TransportError):
        return httpx.post(f"{address}/api/v1/workloads", json=body, headers=headers, timeout=30).status_code
    return 0


def test_takeover(pair: Pair) -> None:
    """The leader is killed, then the next one stopped and woken: work runs on, once, and nothing taken in is lost."""
    pair.start(0)
    pair.leads(0)
    pair.start(1)
    pair.stands_by(1)
    refused = httpx.post(f"{pair.address(1)}/api/v1/workloads", json={})
    assert (refused.status_code, refused.json()["error"], refused.headers["Retry-After"]) == (503, "StandingBy", "1")
    took_s: list[float] = []
    with pair.client() as client:
        line = f"echo $GPUFAIR_INCARNATION $$ >> {pair.rig.folder}/long.starts; sleep 600"
        client.submit({"type": "command", "argv": ["/bin/bash", "-c", line], "cwd": str(pair.rig.folder)},
                      id="long", kind="batch", allocation="a", gpus=1, min_runtime_s=3600)  # fmt: skip
        until("it runs", lambda: pair.rig.starts("long") == 1 and client.workload("long").state == "running")

        pair.signal(0, signal.SIGKILL)
        killed = time.monotonic()
        takes_work(pair, client, "after-kill")
        took_s.append(time.monotonic() - killed)
        pair.leads(1)
        pair.start(0)
        pair.stands_by(0)

        pair.signal(1, signal.SIGSTOP)
        stopped = time.monotonic()
        pair.leads(0)
        took_s.append(time.monotonic() - stopped)
        takes_work(pair, client, "after-stop")
        # Asked while it sleeps: the first that it does when it wakes up, still holding itself for the leader.
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(submit_directly, pair.address(1), client.endpoint().token)
            time.sleep(0.5)  # the question lies at its socket
            pair.signal(1, signal.SIGCONT)
            assert asked.result(60) in (0, 503)
        pair.stands_by(1)
        names = {one.id for one in client.workloads()}
        assert names >= {"long", "after-kill", "after-stop"}
        assert "split" not in names

        def spoken() -> bool:
            return client.workload("long").state == "running" and all(node.state == "ready" for node in client.nodes())

        until(f"the agents to speak to the leader: {pair.log()}", spoken, 60)
        assert pair.rig.starts("long") == 1
        client.stop("long")
        until("it ends", lambda: client.workload("long").state == "ended", 60)
    print(f"takeover after kill -9 {took_s[0]:.1f} s, after SIGSTOP {took_s[1]:.1f} s")
    assert max(took_s) <= TAKEOVER_S, (took_s, pair.log())
    found = check(Place(pair.url))
    assert found.problems == ()
    # Told to end, the leader hands over; nobody waits for a lease.
    pair.signal(0, signal.SIGTERM)
    pair.leads(1)




def labels(server: ApiServer, pod: str) -> list[str]:
    """What this pod was labelled with, in order."""
    asked = zip(server.asked, server.said, strict=True)
    return [value for (path, _, _), value in asked if path.endswith(f"/pods/{pod}")]


def test_a_service_of_kubernetes_finds_the_one_that_leads(pair: Pair, tmp_path: Path) -> None:
    """By a label of its pod, also after the leader's container was killed and stands by in the same pod."""
    account = tmp_path / "account"
    account.mkdir()
    with api_server(account) as server:
        where = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_address[1]),
            "GPUFAIR_POD_NAMESPACE": "gpufair", "GPUFAIR_POD_ACCOUNT": str(account),
        }  # fmt: skip
        pair.start(0, GPUFAIR_POD="pod-0", **where)
        until("the first one to say that it leads", lambda: labels(server, "pod-0")[-1:] == ["true"], 60)
        pair.start(1, GPUFAIR_POD="pod-1", **where)
        pair.stands_by(1)
        until("the other one to say that it does not", lambda: labels(server, "pod-1") == ["false"])
        pair.signal(0, signal.SIGKILL)
        until("the other one to say that it leads", lambda: labels(server, "pod-1")[-1:] == ["true"], 60)
        pair.start(0, GPUFAIR_POD="pod-0", **where)
        until("the first one to say that it leads no more", lambda: labels(server, "pod-0")[-1:] == ["false"], 60)
        pair.stands_by(0)
