"""Files of certificates, and that nobody is listened to in the open by mistake."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from gpufair.service.lifecycle.certificates import BadCertificate, Certificates
from gpufair.service.serve import EXIT_USAGE, run
from gpufair.service.settings.config import ServiceOptions, parse_config
from gpufair.service.settings.tables import ConfigError
from gpufair.service.settings.tls_options import TlsOptions
from tests.authority import Authority
from tests.unit.service.rig import service_at


def test_old_protocols_are_not_spoken(tmp_path: Path) -> None:
    """TLS 1.2 at least."""
    made = Authority(tmp_path).sign("service")
    context = Certificates(TlsOptions(made.certificate, made.key)).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    """Nor one that is not there, of somebody else, or of another certificate; nor is a password asked for."""
    authority = Authority(tmp_path)
    made, other = authority.sign("service"), authority.sign("other")
    for mode in (0o604, 0o620, 0o602):
        made.key.chmod(mode)
        with pytest.raises(BadCertificate, match=f"chmod 600 {made.key}"):
            Certificates(TlsOptions(made.certificate, made.key))
    made.key.chmod(0o640)
    Certificates(TlsOptions(made.certificate, made.key))
    with pytest.raises(BadCertificate, match="cannot be used"):
        Certificates(TlsOptions(made.certificate, other.key))
    with pytest.raises(BadCertificate, match="no certificates"):
        Certificates(TlsOptions(made.certificate, made.key, made.key))
    with pytest.raises(BadCertificate, match="cannot be read"):
        Certificates(TlsOptions(made.certificate, tmp_path / "gone"))
    if os.geteuid() == 0:
        os.chown(made.key, 12345, -1)
        with pytest.raises(BadCertificate, match="belongs to user id 12345"):
            Certificates(TlsOptions(made.certificate, made.key))


def test_a_certificate_that_ends_soon_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While there is time."""
    made = Authority(tmp_path).sign("service", timedelta(days=3))
    with caplog.at_level(logging.WARNING):
        Certificates(TlsOptions(made.certificate, made.key))
    assert "is valid until" in caplog.text
    assert "gpufair reload" in caplog.text


def test_options_are_checked(tmp_path: Path) -> None:
    """Both or none; and they are there. Paths count from the file."""
    made = Authority(tmp_path).sign("service")
    file = str(tmp_path / "gpufair.toml")
    good = '[tls]\ncertificate = "service.crt"\nkey = "service.key"\n'
    assert parse_config(good, file).tls == TlsOptions(made.certificate, made.key)
    for text, told in {
        '[tls]\ncertificate = "service.crt"\n': "both a certificate and its key",
        '[tls]\nclient_ca = "ca.pem"\n': "both a certificate and its key",
        good + 'client_ca = "gone.pem"\n': "is not there",
    }.items():
        with pytest.raises(ConfigError, match=told):
            parse_config(text, file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gpufair.lab"])
def test_nothing_is_listened_to_in_the_open_unless_told(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is made."""
    file = tmp_path / "gpufair.toml"
    file.write_text("")
    assert run(file, tmp_path / "state", host=host) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "[tls]" in said
    assert "--insecure" in said
    assert not (tmp_path / "state").exists()


async def test_a_proxy_on_this_machine_asks_by_the_names_that_were_said(tmp_path: Path) -> None:
    """All others are foreign: a page of somebody's that was resolved to this address."""
    async with service_at(tmp_path, service=ServiceOptions(names=("GPUfair.lab",))) as (_, client):
        told = [
            (await client.get("/api/v1/status", headers={"Host": host})).status_code
            for host in ("127.0.0.1:1", "gpufair.lab", "gpufair.lab:443", "evil.example")
        ]
        assert told == [200, 200, 200, 421]
