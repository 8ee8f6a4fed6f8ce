"""Whether a service answers, and whether it takes anything in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufair.client.endpoint import Endpoint
from gpufair.client.errors import Unavailable
from gpufair.client.verification import verified

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 2.0


def health(endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> None:
    """Ask ``/healthz``; return if it answers well.

    Raises:
        Unavailable: It does not.
    """
    answer = _asked(endpoint, "healthz", timeout_s)
    if answer.status_code != 200:
        raise Unavailable(f"asking {endpoint.url}/healthz", f"the answer was HTTP {answer.status_code}", _where(endpoint))


def readiness(endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> str:
    """Why the service takes nothing in now; "" if it does.

    Raises:
        Unavailable: It does not answer.
    """
    answer = _asked(endpoint, "readyz", timeout_s)
    if answer.status_code == 200:
        return ""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the answer was HTTP {answer.status_code}"


def _asked(endpoint: Endpoint, path: str, timeout_s: float) -> httpx.Response:
    import httpx  # noqa: PLC0415  # 100 ms that `--help` and completion of flags need not pay

    try:
        # trust_env only for far services: a corporate proxy must not be asked for loopback.
        with httpx.Client(trust_env=not endpoint.loopback, verify=verified(endpoint), timeout=timeout_s) as http:
            return http.get(f"{endpoint.url}/{path}")
    except (httpx.HTTPError, httpx.InvalidURL) as err:
        said = f"no answer within {timeout_s:g} s ({str(err) or type(err).__name__})"
        raise Unavailable(f"asking {endpoint.url}/{path}", said, _where(endpoint)) from err


def _where(endpoint: Endpoint) -> str:
    return f"the service's log is in {endpoint.folder}" if endpoint.folder else "check $GPUFAIR_URL and the service"
