"""Notices on their way: to a real HTTP server and a real mail server of this machine, signed, bounded and without secrets."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpufair.service.delivery.senders import Mail, NotSent, Webhook, signature
from gpufair.service.settings.config import parse_config
from gpufair.service.settings.notification_options import (
    MailOptions,
    NoSecret,
    NotificationOptions,
    SecretPlace,
    WebhookOptions,
    safe_url,
)
from gpufair.service.settings.tables import ConfigError

NOTICE = {"id": "w.1.end", "kind": "end", "user": "ada", "text": "train\nhas completed — schön", "workload": "w", "allocation": "a"}
NOW_S = 1_790_000_000.0
DAY = timedelta(days=1)


class Receiver(HTTPServer):
    """Keeps what is posted; answers with the next of ``answers``, else 204."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """A web server, until the end of the block."""
    server = Receiver(port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_webhook_gets_json_that_it_can_trust(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    with receiver() as server:
        sender = Webhook(WebhookOptions(url=server.url, secret=SecretPlace(file=tmp_path / "secret")))
        await sender.send(NOTICE, NOW_S)
        await sender.close()
    [(headers, body)] = server.got
    assert json.loads(body) == NOTICE
    assert headers["X-Gpufair-Id"] == "w.1.end"
    digest = hmac.new(b"s3cret", b"1790000000." + body, hashlib.sha256).hexdigest()
    assert headers["X-Gpufair-Signature"] == f"t=1790000000,sha256={digest}" == signature("s3cret", 1_790_000_000, body)


@pytest.mark.parametrize("status", [301, 404, 503])
async def test_only_what_was_taken_was_sent(status: int) -> None:
    """Nobody is followed elsewhere, and what stands in an address is not repeated."""
    with receiver() as server:
        server.answers = [status]
        sender = Webhook(WebhookOptions(users={"ada": f"{server.url}/token-in-path"}))
        with pytest.raises(NotSent) as caught:
            await sender.send(NOTICE, NOW_S)
        assert str(caught.value) == f"the webhook at 127.0.0.1 did not take a notice: it answered {status}"
        await sender.send(NOTICE | {"user": "bo"}, NOW_S)  # has no address
        await sender.close()
    assert len(server.got) == 1


class Mailbox:
    """What a mail server took."""

    def __init__(self) -> None:
        self.got: list[tuple[str, list[str], Message]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's word
        self.got.append((envelope.mail_from, envelope.rcpt_tos, message_from_bytes(envelope.content)))
        return "250 taken"


@contextmanager
def mail_server(password: str, certificate: Path) -> Iterator[tuple[Mailbox, int]]:
    """A mail server, until the end of the block; it takes mail from user ``gpufair`` only, and after STARTTLS only."""
    box = Mailbox()

    def known(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=(given.login, given.password) == (b"gpufair", password.encode()))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    how: dict[str, Any] = {"authenticator": known, "auth_required": True, "tls_context": context, "require_starttls": True}
    controller = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=30, **how)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of 127.0.0.1, with its key; this process trusts it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "mail.pem"
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(plain + made.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def options(port: int) -> MailOptions:
    password = SecretPlace(variable="GPUFAIR_TEST_PASSWORD")
    return MailOptions("127.0.0.1", port, "starttls", "gpufair", password, "gpufair@lab.test", "lab.test")


async def test_a_mail_for_each_notice(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFAIR_TEST_PASSWORD", "geheim")
    with mail_server("geheim", certificate) as (box, port):
        sender = Mail(options(port))
        assert "GPUFAIR_TEST_PASSWORD" not in os.environ  # kernels would inherit it
        await sender.send(NOTICE, NOW_S)
        await sender.send(NOTICE, NOW_S)  # again: the reader's program sees that it is the same
    (whose, to, message), (_, _, again) = box.got
    assert (whose, to) == ("gpufair@lab.test", ["ada@lab.test"])
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert "has completed — schön.\n\nworkload: w\nallocation: a" in payload.decode().replace("\r\n", "\n")
    assert message["X-Gpufair-Id"] == "w.1.end"
    assert message["Message-ID"] == again["Message-ID"]


async def test_what_goes_wrong_is_said_without_what_was_said_to_the_server(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFAIR_TEST_PASSWORD", "falsch")
    with mail_server("geheim", certificate) as (box, port):
        with pytest.raises(NotSent) as caught:
            await (sender := Mail(options(port))).send(NOTICE, NOW_S)
        assert str(caught.value).startswith(f"the mail server 127.0.0.1:{port} did not take a notice: ")
        assert "falsch" not in str(caught.value)
        with pytest.raises(NoSecret, match="it is not set"):
            await Mail(options(port)).send(NOTICE, NOW_S)
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(NotSent, match="SSLCertVerificationError"):  # somebody else may be listening
            await sender.send(NOTICE, NOW_S)
    assert not box.got
    with pytest.raises(NotSent, match="ConnectionRefusedError"):
        await sender.send(NOTICE, NOW_S)


def told(text: str) -> NotificationOptions:
    return parse_config(text, "/etc/gpufair/gpufair.toml").notifications


def test_the_table_as_documented() -> None:
    found = told(
        '[notifications]\ndefault = ["end", "preempted"]\n'
        '[notifications.webhook]\nurl = "https://chat.example.org/hook"\nsecret_file = "hook.secret"\n'
        'users = { ria = "https://chat.example.org/ria" }\n'
        '[notifications.smtp]\nhost = "mail.example.org"\nsender = "gpufair@example.org"\ndomain = "example.org"\n'
        'user = "gpufair"\npassword_env = "MAIL_PASSWORD"\nusers = { ben = "b.b@example.com" }\n'
    )
    assert found.default == ("preempted", "end")
    assert found.webhook.secret == SecretPlace(file=Path("/etc/gpufair/hook.secret"))
    assert [found.webhook.address(user) for user in ("ria", "ben")] == ["https://chat.example.org/ria", "https://chat.example.org/hook"]
    assert [found.mail.address(user) for user in ("ria", "ben")] == ["ria@example.org", "b.b@example.com"]
    assert (found.mail.port, found.mail.security) == (587, "starttls")
    assert found.channels("ria") == ("webhook", "mail")
    assert told("").channels("ria") == ()


@pytest.mark.parametrize(("text", "why"), [
    ('default = ["ended"]', 'line 2: default: "ended" is nothing that is told'),
    ('[notifications.webhook]\nurl = "http://chat.example.org/"', "line 3: url = "),
    ('[notifications.webhook]\nusers = { ria = "ftp://x" }', "line 3: ria = "),
    ('[notifications.webhook]\nsecret_file = "a"\nsecret_env = "B"', "line 4: secret_file and secret_env are both given"),
    ('[notifications.smtp]\nhost = "m"', 'sender = "": expected an address'),
    ('[notifications.smtp]\nhost = "m"\nsender = "a@b"\nusers = { ria = "r@x\\nBcc: y" }', "users: "),
    ('[notifications.smtp]\nhost = "m"\nsender = "a@b"\nuser = "u"', "belong together"),
    ('[notifications.smtp]\nhost = "m"\nsender = "a@b"\nuser = "u"\npassword_env = "P"\nsecurity = "none"', "in the open"),
    ("wehbook = 1", "unknown key 'wehbook'"),
])  # fmt: skip
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        told(f"[notifications]\n{text}\n")
    assert why in str(caught.value)


def test_urls() -> None:
    for url in ("https://x.org", "http://127.0.0.1:8/a", "http://localhost/", "http://[::1]:1/"):
        assert safe_url(url), url
    for url in ("http://x.org", "http://127.0.0.1.x.org", "https://", "https://[x", "http://localhost:x/", "file:///etc/passwd", "x"):
        assert not safe_url(url), url
