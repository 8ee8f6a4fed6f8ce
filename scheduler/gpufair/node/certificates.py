"""Certificates by which those who reach a kernel from another machine know its port. Nobody signs them: the service passes
their fingerprints on."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from gpufair.node.files import write_private

_YEARS = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of a certificate and its key, in PEM."""

    certificate: Path
    key: Path


def certificate(folder: Path, host: str) -> Identity:
    """A node's own; made at the first start.

    Raises:
        OSError: It can't be written.
    """
    made = Identity(folder / "node.crt", folder / "node.key")
    if not (made.certificate.exists() and made.key.exists()):
        public, private = pair(host)
        # The key first: a certificate without it would be taken for a whole pair.
        write_private(made.key, private)
        write_private(made.certificate, public)
        os.sync()
    return made


def pair(host: str) -> tuple[bytes, bytes]:
    """A new certificate and its key, in PEM."""
    from cryptography import x509  # noqa: PLC0415  # heavy, and only for kernels that other machines reach
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
    return signed.public_bytes(serialization.Encoding.PEM), private
