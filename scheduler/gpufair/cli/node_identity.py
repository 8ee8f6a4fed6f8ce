"""By what a node is known: its token, and a certificate of its own for those who reach its kernels."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from gpufair.cli.exits import CommandError
from gpufair.client.endpoint import private_text
from gpufair.node.files import write_private

_YEARS = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of a certificate and its key, in PEM."""

    certificate: Path
    key: Path


def certificate(folder: Path, host: str) -> Identity:
    """The node's own; made at the first start. Nobody signs it: the service passes its fingerprint on.

    Raises:
        OSError: It can't be written.
    """
    made = Identity(folder / "node.crt", folder / "node.key")
    if not (made.certificate.exists() and made.key.exists()):
        _make(made, host)
    return made


def token_of(path: Path) -> str:
    """The token in a file.

    Raises:
        CommandError: There is none, or others could read it.
    """
    try:
        token = private_text(path).strip()
    except (OSError, UnicodeDecodeError) as err:
        raise CommandError(
            f"--token-file {path} cannot be read ({err}); write it with `gpufair nodes token NODE --output FILE` where the "
            "service runs, and copy it here"
        ) from err
    if not token:
        raise CommandError(f"--token-file {path} is empty")
    return token


def _make(made: Identity, host: str) -> None:
    from cryptography import x509  # noqa: PLC0415  # heavy, and once in a node's life
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, host[:64] or "node")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The key first: a certificate without it would be taken for a whole pair.
    write_private(made.key, private)
    write_private(made.certificate, signed.public_bytes(serialization.Encoding.PEM))
    os.sync()
