"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, with TLS, tokens and RBAC.

    with ControlPlane(folder, programs) as plane:
        plane.kubeconfig, plane.restart_api()

From a shell: `python -m tests.kube.control_plane up|down|status|kill-api|start-api` (`make kube-up`, `make kube-down`).
The programs come from `make kube-build`. There is no scheduler and no kubelet: `fake_node.py` has nodes.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from gpufair.node.processes import death_signal
from tests.kube.certificates import write_certificates
from tests.kube.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.kube.programs import Programs

READY_WITHIN_S = 120.0
STOP_WITHIN_S = 5.0
"""After SIGTERM; then SIGKILL. An API server with watches open would take a minute."""

CONTROLLERS = (
    "namespace", "serviceaccount", "serviceaccount-token", "garbagecollector", "nodelifecycle", "resourcequota", "podgc", "disruption",
)  # fmt: skip
LOOPBACK = "127.0.0.1"


class ControlPlane:
    """``folder`` holds its data, keys, logs and kubeconfig; a new one each time. All of it ends with this process."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._programs = programs
        self._ports = {name: _free_port() for name in ("etcd", "peer", "api")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Linux ends them with the thread that started them, and whoever restarts the API server may do so in one that ends.
        self._parent = ThreadPoolExecutor(1, "control-plane")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        write_certificates(folder)
        self._tokens = {name: secrets.token_urlsafe(24) for name in ("admin", "controllers")}
        users = [
            f'{self._tokens["admin"]},admin,1,"system:masters"',
            f'{self._tokens["controllers"]},system:kube-controller-manager,2,"system:masters"',
        ]
        tokens = folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(users) + "\n")
        write_kubeconfig(self.kubeconfig, self.url, self._tokens["admin"], ca_file=folder / "ca.crt")
        write_kubeconfig(folder / "controllers.kubeconfig", self.url, self._tokens["controllers"], ca_file=folder / "ca.crt")

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._ports['api']}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._parent.shutdown()

    def start(self) -> None:
        """Return when pods can be created. On failure nothing is left running."""
        try:
            self._spawn("etcd", [
                str(self._programs.etcd), "--data-dir", str(self.folder / "etcd"), *self._no_fsync(),
                "--listen-client-urls", self._local("etcd"), "--advertise-client-urls", self._local("etcd"),
                "--listen-peer-urls", self._local("peer"), "--initial-advertise-peer-urls", self._local("peer"),
                "--initial-cluster", f"default={self._local('peer')}", "--log-level", "error",
            ])  # fmt: skip
            self.start_api()
            self._spawn("controllers", [
                str(self._programs.controllers), "--kubeconfig", str(self.folder / "controllers.kubeconfig"), "--port=0", "--secure-port=0",
                "--leader-elect=false", f"--controllers={','.join(CONTROLLERS)}",
                "--service-account-private-key-file", str(self.folder / "accounts.key"), "--root-ca-file", str(self.folder / "ca.crt"),
            ])  # fmt: skip
            self._wait("a ServiceAccount of the namespace default", lambda: self._answers("/api/v1/namespaces/default/serviceaccounts/default"))
        except BaseException:
            self.stop()
            raise

    def start_api(self) -> None:
        """Return when it answers."""
        key = self.folder / "accounts.key"
        self._spawn("api", [
            str(self._programs.api), "--etcd-servers", self._local("etcd"), f"--bind-address={LOOPBACK}", f"--secure-port={self._ports['api']}",
            "--insecure-port=0", f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none",
            "--tls-cert-file", str(self.folder / "server.crt"), "--tls-private-key-file", str(self.folder / "server.key"),
            "--token-auth-file", str(self.folder / "tokens.csv"), "--authorization-mode=Node,RBAC", "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file", str(key),
            "--service-account-key-file", str(key), "--service-cluster-ip-range=10.0.0.0/24", "--profiling=false",
        ])  # fmt: skip
        self._wait("the API server", lambda: self._answers("/readyz"))

    def kill_api(self) -> None:
        """Kill -9: connections break, and new ones are refused until ``start_api``."""
        process = self._processes.pop("api")
        process.kill()
        process.wait(30)

    def restart_api(self, down_s: float = 0.0) -> None:
        """Kill -9, and start it again ``down_s`` seconds later. The data stays; what watches could go back to does not."""
        self.kill_api()
        time.sleep(down_s)
        self.start_api()

    def stop(self) -> None:
        """End everything. May be called twice."""
        processes = [process for _, process in sorted(self._processes.items())]
        self._processes.clear()
        for process in processes:
            process.terminate()
        ends = time.monotonic() + STOP_WITHIN_S
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, ends - time.monotonic()))
        for process in processes:
            process.kill()
            process.wait(30)

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def ended(self) -> str | None:
        """The name of a part that has ended by itself, if any."""
        return next((name for name, process in self._processes.items() if process.poll() is not None), None)

    def _no_fsync(self) -> list[str]:
        """Data that lives as long as we do need not reach a disk. (etcd 3.5 has a flag for it.)"""
        known = subprocess.run([self._programs.etcd, "--help"], capture_output=True, text=True, check=False)
        return ["--unsafe-no-fsync"] if "--unsafe-no-fsync" in known.stdout + known.stderr else []

    def _local(self, name: str) -> str:
        return f"http://{LOOPBACK}:{self._ports[name]}"

    def _spawn(self, name: str, command: list[str]) -> None:
        def start() -> subprocess.Popen[bytes]:
            with (self.folder / f"{name}.log").open("ab") as log:
                return subprocess.Popen(
                    command,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=death_signal(),  # noqa: PLW1509  # one system call
                )

        self._processes[name] = self._parent.submit(start).result()

    def _answers(self, path: str) -> bool:
        access = read_kubeconfig(self.kubeconfig)
        with suppress(httpx.TransportError):
            return httpx.get(access.url + path, headers=access.headers, verify=access.context or True, timeout=5.0, trust_env=False).is_success
        return False

    def _wait(self, what: str, there: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_WITHIN_S
        while not there():
            if name := self.ended():
                raise RuntimeError(f"{name} has ended by itself: {self._last_words(name)}")
            if time.monotonic() > until:
                raise RuntimeError(f"{what} is not there after {READY_WITHIN_S:g} s; the logs are in {self.folder}")
            time.sleep(0.1)

    def _last_words(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-1500:]


def _free_port() -> int:
    with socket.socket() as place:
        place.bind((LOOPBACK, 0))
        port: int = place.getsockname()[1]
        return port


if __name__ == "__main__":
    from tests.kube.control_plane_command import main

    main()
