"""A certificate authority for tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Signed:
    """Files of a certificate and its key, and one with both."""

    certificate: Path
    key: Path
    both: Path
    serial: int


class Authority:
    """Signs certificates; ``file`` is its own."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key, timedelta(days=30))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, lasts: timedelta = timedelta(days=30)) -> Signed:
        """A new certificate for localhost and 127.0.0.1 in files called ``name``; those of before are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, lasts)
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        signed = made.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(self._key, hashes.SHA256())
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = signed.public_bytes(serialization.Encoding.PEM)
        files = {".crt": public, ".key": secret, ".both": secret + public}
        for ending, data in files.items():
            path = self._folder / f"{name}{ending}"
            path.write_bytes(data)
            path.chmod(0o600)
        certificate, private, both = (self._folder / f"{name}{ending}" for ending in files)
        return Signed(certificate, private, both, signed.serial_number)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + lasts)
        )
