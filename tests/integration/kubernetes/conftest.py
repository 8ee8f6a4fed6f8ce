"""API servers for the tests of the backend: the fake one always, a real one where ``GPUFAIR_TEST_KUBECONFIG`` names it."""

from __future__ import annotations

import os
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kube.client import KubeClient
from tests.kube.fake_api import FakeApi
from tests.kube.kubeconfig import read_kubeconfig, write_kubeconfig

REAL = os.environ.get("GPUFAIR_TEST_KUBECONFIG", "")


@dataclass(frozen=True)
class Server:
    """One API server, and a namespace of it for this test alone."""

    kubeconfig: Path
    namespace: str
    fake: FakeApi | None  # None: it is real

    def account(self, path: Path, name: str = "weak") -> Path:
        """The kubeconfig of a new ServiceAccount of the namespace, which has no rights yet."""
        with KubeClient(self.kubeconfig) as admin:
            accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
            admin.ok("POST", accounts, {"metadata": {"name": name}})
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            }
            token = admin.ok("POST", f"{accounts}/{name}/token", request)["status"]["token"]
        access = read_kubeconfig(self.kubeconfig)
        authority = None
        if access.context is not None:
            authority = path.with_suffix(".crt")
            authority.write_text(
                "".join(ssl.DER_cert_to_PEM_cert(der) for der in access.context.get_ca_certs(binary_form=True))
            )
        return write_kubeconfig(path, access.url, token, ca_file=authority, namespace=self.namespace)


@pytest.fixture(params=["fake", "real"] if REAL else ["fake"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "fake":
        with FakeApi() as fake:
            yield made(fake, tmp_path)
        return
    namespace = _made(Path(REAL))
    yield Server(Path(REAL), namespace, None)
    with KubeClient(Path(REAL)) as admin:
        admin.call("DELETE", f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


def made(fake: FakeApi, folder: Path) -> Server:
    """The fake server, with a namespace for a test."""
    path = fake.kubeconfig(folder / "kubeconfig")
    return Server(path, _made(path), fake)


def _made(kubeconfig: Path) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    with KubeClient(kubeconfig) as admin:
        admin.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name
