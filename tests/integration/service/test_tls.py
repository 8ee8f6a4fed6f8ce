"""A service with a certificate of its own: who gets in, who is told why not, and how the certificate is replaced."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from gpufair.client.aio import AsyncClient
from gpufair.client.endpoint import discover
from gpufair.client.errors import ServiceError, Unavailable
from gpufair.client.exchange import Patience
from gpufair.client.health import health
from gpufair.client.sync import Client
from gpufair.node.files import write_json
from gpufair.node.service_calls import Refused, ServiceCalls, ServiceUnreachable
from gpufair.paths import SERVICE_FILE
from gpufair.service.identity.secrets import Secrets
from tests.authority import Authority, Signed
from tests.integration.service.rig import Rig, until
from tests.real_hub import free_port

ONCE = Patience(tries=1, total_s=10.0)
CONFIG = """\
[service]
port = PORT
[tls]
certificate = "service.crt"
key = "service.key"
client_ca = "ca.pem"
[[node]]
name = "n1"
remote = true
"""


class Lab:
    """A service that shows a certificate, and asks for one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.authority = Authority(folder)
        self.shown = self.authority.sign("service")
        self.mine: Signed = self.authority.sign("ada")
        self.rig = Rig(folder, CONFIG.replace("PORT", str(self.port)), embedded=False)
        self.url = f"https://localhost:{self.port}"
        self.environ = {
            "GPUFAIR_URL": self.url,
            "GPUFAIR_CA": str(self.authority.file),
            "GPUFAIR_CLIENT_CERTIFICATE": str(self.mine.both),
        }

    def start(self) -> None:
        """Start it."""
        self.rig.start()
        self.environ["GPUFAIR_TOKEN"] = Secrets.load(self.rig.state).operator_token()

    def serial(self) -> int:
        """Of the certificate that it shows to who connects now."""
        context = ssl.create_default_context(cafile=self.authority.file)
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as secure,
        ):
            data = secure.getpeercert(binary_form=True)
            assert data
            return x509.load_der_x509_certificate(data).serial_number


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One for all tests of this file."""
    lab = Lab(tmp_path_factory.mktemp("tls"))
    try:
        lab.start()
        yield lab
    finally:
        lab.rig.clean()


async def test_clients_verify_the_service_and_show_who_they_are(lab: Lab) -> None:
    """Both clients by the environment; and this machine's own by the state folder, without any certificate."""
    with Client(environ=lab.environ) as client:
        assert client.status().mode == "shared"
    async with AsyncClient(environ=lab.environ) as aio:
        assert (await aio.status()).mode == "shared"
    health(discover(environ=lab.environ))
    with Client(state_dir=lab.rig.state, environ={}) as client:
        assert client.endpoint().url.startswith("http://127.0.0.1:")
        assert client.status().mode == "shared"


def test_who_cannot_verify_or_shows_nothing_is_told_what_to_do(lab: Lab, tmp_path: Path) -> None:
    """Nothing is sent to a service that may be another one."""
    other = Authority(tmp_path, "other")

    def problem(**changes: str) -> str:
        with Client(environ=lab.environ | changes, patience=ONCE) as client, pytest.raises(Unavailable) as caught:
            client.status()
        return str(caught.value)

    assert "$GPUFAIR_CA" in problem(GPUFAIR_CA="")
    assert "$GPUFAIR_CA" in problem(GPUFAIR_CA=str(other.file))
    assert "cannot be used" in problem(GPUFAIR_CA=str(tmp_path / "gone.pem"))
    assert "without a password" in problem(GPUFAIR_CLIENT_CERTIFICATE=str(lab.authority.file))
    problem(GPUFAIR_CLIENT_CERTIFICATE="")
    problem(GPUFAIR_CLIENT_CERTIFICATE=str(other.sign("eve").both))
    problem(GPUFAIR_URL=lab.url.replace("https", "http"))
    with Client(environ=lab.environ | {"GPUFAIR_TOKEN": "wrong"}) as client, pytest.raises(ServiceError, match="token"):
        client.status()


async def test_agents_verify_the_service_and_show_who_they_are(lab: Lab, tmp_path: Path) -> None:
    """With the files that `gpufair agent` notes."""
    token = Secrets.load(lab.rig.state).agent_token("n1")
    good = {"url": lab.url, "ca": str(lab.authority.file), "certificate": str(lab.mine.both)}
    write_json(tmp_path / SERVICE_FILE, good)
    calls = ServiceCalls(tmp_path, "n1", token)
    with pytest.raises(Refused) as told:
        await calls.call("GET", "/commands?boot=b&after=0&wait_s=0")
    assert told.value.status in {400, 409, 422}, told.value  # it was let in: what it says is another matter
    calls.close()
    for name in ("ca", "certificate"):
        write_json(tmp_path / SERVICE_FILE, good | {name: None})
        with pytest.raises(ServiceUnreachable):
            await calls.call("GET", "/commands?boot=b&after=0&wait_s=0")


def test_a_certificate_is_replaced_while_all_goes_on(lab: Lab) -> None:
    """By `gpufair reload` or SIGHUP; what cannot be used is refused, and the old one stays."""
    assert lab.serial() == lab.shown.serial
    with Client(environ=lab.environ) as client:
        assert client.reload().changed == ()
        second = lab.authority.sign("service")
        assert "certificate" in client.reload().changed
        assert lab.serial() == second.serial
        assert client.status().mode == "shared"  # a connection of before goes on
        third = lab.authority.sign("service")
        assert lab.rig.process is not None
        lab.rig.process.send_signal(signal.SIGHUP)
        until("the service shows the third", lambda: lab.serial() == third.serial or None)
        third.key.write_text("no key")
        with pytest.raises(ServiceError, match="cannot be used"):
            client.reload()
        third.key.chmod(0o644)
        with pytest.raises(ServiceError, match="chmod 600"):
            client.reload()
        assert lab.serial() == third.serial
