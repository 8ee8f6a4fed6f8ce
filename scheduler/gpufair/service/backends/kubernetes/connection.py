"""Where the API server is and how it is spoken to: read by the official client, which knows kubeconfigs, accounts and TLS."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml
from kubernetes import client, config

from gpufair.service.backends.kubernetes.asked import Asked
from gpufair.service.backends.kubernetes.problems import NoApiServer, Unauthorized

_loading: Final[Any] = config  # half annotated
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Place:
    """Which API server. Without a kubeconfig that of the cluster this process runs in, else what ``kubectl`` would take."""

    kubeconfig: Path | None = None
    context: str = ""  # "": the kubeconfig's current one

    @property
    def shown(self) -> str:
        """For messages."""
        where = f"kubeconfig {str(self.kubeconfig)!r}" if self.kubeconfig else "the default kubeconfig"
        return f"context {self.context!r} of {where}" if self.context else where


class Connection:
    """The pool of connections to one API server, and what each call shows to be let in. Threads may share it."""

    def __init__(self, configuration: client.Configuration, namespace: str) -> None:
        self.namespace: Final = namespace  # that of the context or of the account
        self.url: Final = str(configuration.host).rstrip("/")
        self._configuration = configuration
        self._client = client.ApiClient(configuration)
        self.pool: Final[urllib3.PoolManager] = self._client.rest_client.pool_manager
        self._renewing = threading.Lock()

    def headers(self, asked: Asked) -> dict[str, str]:
        """Who asks. A token that grows old is renewed, which may run a program: for threads.

        Raises:
            Unauthorized: It cannot be renewed.
        """
        # One at a time: the hook writes into the configuration.
        with self._renewing:
            try:
                settings: Mapping[str, Any] = self._configuration.auth_settings()
            except (config.ConfigException, OSError, ValueError) as err:
                raise Unauthorized(asked, f"the credentials cannot be renewed ({err})") from err
        return {one["key"]: one["value"] for one in settings.values() if one["in"] == "header" and one["value"]}

    def close(self) -> None:
        """End the connections that nobody uses."""
        self.pool.clear()


def connect(place: Place, connections: int, environ: Mapping[str, str] = os.environ) -> Connection:
    """Read the settings; nothing is asked of the server yet. Reads files and may run a program: for threads.

    Args:
        connections: How many are kept open.

    Raises:
        NoApiServer: The settings lead nowhere.
    """
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = connections
    inside = place.kubeconfig is None and not place.context and bool(environ.get("KUBERNETES_SERVICE_HOST"))
    where = "the service account of this pod" if inside else place.shown
    file = None if place.kubeconfig is None else str(place.kubeconfig)
    try:
        if inside:
            _loading.load_incluster_config(client_configuration=configuration)
            namespace = _ACCOUNT_NAMESPACE.read_text().strip()
        else:
            if place.kubeconfig is not None and not place.kubeconfig.is_file():
                raise NoApiServer(where, "there is no such file")
            context = place.context or None
            _loading.load_kube_config(file, context, client_configuration=configuration)
            namespace = _namespace_of(file, place.context)
        return Connection(configuration, namespace or "default")
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as err:
        raise NoApiServer(where, f"{type(err).__name__}: {err}".splitlines()[0]) from err


def _namespace_of(file: str | None, context: str) -> str:
    contexts, current = _loading.list_kube_config_contexts(file)
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str(chosen["context"].get("namespace") or "")
