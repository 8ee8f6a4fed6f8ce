"""The service's own certificate, read anew when its owner says so."""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from gpufair.core.errors import GpufairError
from gpufair.service.settings.tls_options import TlsOptions

MOST_BYTES: Final = 1 << 20  # of a file of certificates
ENDS_SOON: Final = timedelta(days=14)
_log = logging.getLogger(__name__)


class BadCertificate(GpufairError):
    """A file of ``[tls]`` cannot be used."""


class Certificates:
    """The context for those who connect, for as long as the service runs. Its methods read files.

    Raises:
        BadCertificate: One of the files cannot be used.
    """

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self.context = _context(options)
        self._shown = self._digest()

    def reload(self) -> bool:
        """Show what is in the files now to whoever connects from now on. Returns whether that is something else.

        An authority that is no longer in ``client_ca`` counts until the service is restarted.

        Raises:
            BadCertificate: One of them cannot be used; what was shown so far still is.
        """
        _context(self._options)  # all of it, before anything of what is in use changes
        before, self._shown = self._shown, self._digest()
        _fill(self.context, self._options)
        return before != self._shown

    def _digest(self) -> str:
        paths = (self._options.certificate, self._options.key, self._options.client_ca)
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths if path is not None)).hexdigest()


def _context(options: TlsOptions) -> ssl.SSLContext:
    assert options.certificate is not None
    assert options.key is not None
    _check_private(options.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if options.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    _fill(context, options)
    _warn_of_end(options.certificate)
    return context


def _fill(context: ssl.SSLContext, options: TlsOptions) -> None:
    assert options.certificate is not None
    try:
        # Nobody is there to be asked for a password.
        context.load_cert_chain(options.certificate, options.key, password=lambda: "")
    except (OSError, ValueError) as err:
        raise BadCertificate(
            f"{options.certificate} and {options.key} cannot be used ({_why(err)}); they have to be PEM files of a certificate, "
            "with those that signed it behind it, and of its key without a password"
        ) from err
    if options.client_ca is not None:
        try:
            context.load_verify_locations(options.client_ca)
        except (OSError, ValueError) as err:
            raise BadCertificate(f"client_ca {options.client_ca} holds no certificates in PEM ({_why(err)})") from err


def _why(err: OSError | ValueError) -> str:
    return str((getattr(err, "reason", "") or err.strerror) if isinstance(err, OSError) else err) or type(err).__name__


def _check_private(key: Path) -> None:
    try:
        about = key.stat()
    except OSError as err:
        raise BadCertificate(f"{key} cannot be read: {err.strerror or err}") from err
    if about.st_uid not in {os.geteuid(), 0}:
        raise BadCertificate(f"{key} belongs to user id {about.st_uid}, who could read it; use one of your own")
    # A group that may read keys is a custom of some systems.
    if about.st_mode & 0o027:
        raise BadCertificate(f"{key} can be read or replaced by others, and it is secret; run: chmod 600 {key}")


def _warn_of_end(certificate: Path) -> None:
    try:
        ends = x509.load_pem_x509_certificate(certificate.read_bytes()[:MOST_BYTES]).not_valid_after_utc
    except (OSError, ValueError):
        return  # whether it can be used is not ours to say
    if ends - datetime.now(UTC) < ENDS_SOON:
        _log.warning("the certificate %s is valid until %s only; replace it and run `gpufair reload`", certificate, f"{ends:%d %b %Y %H:%M} UTC")
