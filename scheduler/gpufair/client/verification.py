"""How the certificate of a service is verified, and which one of ours is shown where it asks for one."""

from __future__ import annotations

import ssl

from gpufair.client.endpoint import Endpoint
from gpufair.client.errors import Unavailable

Kind = tuple[bool, bool, str, str]  # what a client's connections depend on: whether a proxy may be asked, and the rest is TLS


def kind_of(endpoint: Endpoint) -> Kind:
    """Endpoints of one kind can share a client."""
    # A proxy from the environment must not be asked for loopback, and plain http needs no certificates loaded.
    return not endpoint.loopback, endpoint.url.startswith("https:"), endpoint.ca, endpoint.certificate


def verified(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """For httpx: its context. Reads files.

    Raises:
        Unavailable: One of them cannot be used.
    """
    _, secure, ca, certificate = kind_of(endpoint)
    if not secure:
        return False
    if not (ca or certificate):
        import httpx  # noqa: PLC0415  # as elsewhere: whoever only looks at flags need not pay

        return httpx.create_ssl_context()
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ValueError) as err:
        raise _unusable("$GPUFAIR_CA", ca, err, "name a PEM file of the authority that signed the service's") from err
    if certificate:
        try:
            context.load_cert_chain(certificate, password=lambda: "")
        except (OSError, ValueError) as err:
            step = "name a PEM file with a certificate and its key, without a password"
            raise _unusable("$GPUFAIR_CLIENT_CERTIFICATE", certificate, err, step) from err
    return context


def _unusable(variable: str, path: str, err: Exception, step: str) -> Unavailable:
    return Unavailable(f"reading the file in {variable}", f"{path} cannot be used ({err})", step)
