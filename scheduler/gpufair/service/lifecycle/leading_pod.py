"""In a pod of Kubernetes: which of several services leads, said by a label of its pod, which a Service selects by.

Pods that stand by are as well as the one that leads (a rollout and a drain count on that), so readiness can't tell them
apart. It is told where ``GPUFAIR_POD`` and ``GPUFAIR_POD_NAMESPACE`` are set; elsewhere nothing is. The account is that of the pod, or
of the folder ``GPUFAIR_POD_ACCOUNT`` (a projected token, say).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

LABEL: Final = "gpufair.io/leads"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S: Final = 5.0
_AGAIN_S: Final = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, and how to reach the API server from it. ``account``: the folder with the token and the authority."""

    name: str
    namespace: str
    server: str
    account: Path = ACCOUNT

    @classmethod
    def own(cls, environ: Mapping[str, str] = os.environ) -> Pod | None:
        """The one that this process is in; None: it is in none, or was not told which."""
        name, namespace = environ.get("GPUFAIR_POD", ""), environ.get("GPUFAIR_POD_NAMESPACE", "")
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not (name and namespace and host):
            return None
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return cls(name, namespace, server, Path(environ.get("GPUFAIR_POD_ACCOUNT") or ACCOUNT))

    async def label(self, value: str) -> None:
        """Give it the label.

        Raises:
            httpx.HTTPError: The API server did not do it.
            OSError: There is no account.
        """
        # Both are read each time: Kubernetes replaces them while we run.
        token = (self.account / "token").read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        # No proxy of the environment: it is the cluster's own server.
        async with httpx.AsyncClient(verify=context, timeout=_TIMEOUT_S, trust_env=False) as http:
            answer = await http.patch(
                f"{self.server}/api/v1/namespaces/{self.namespace}/pods/{self.name}",
                json={"metadata": {"labels": {LABEL: value}}},
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
            )
            answer.raise_for_status()


class LeadingPod:
    """Says it, and asks again until it is said. As a context: nothing is said any more behind its end.

    What is said last counts; nobody waits for it.
    """

    def __init__(self, pod: Pod | None, again_s: float = _AGAIN_S) -> None:
        """``pod`` None: there is nobody to tell. ``again_s``: after a failure."""
        self._pod, self._again_s = pod, again_s
        self._leads = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._pod is not None:
            self._task = asyncio.create_task(self._tell(self._pod), name="leading-pod")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def say(self, *, leads: bool) -> None:
        """Whether this service leads from now on."""
        self._leads = leads
        self._changed.set()

    async def _tell(self, pod: Pod) -> None:
        said = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            value = "true" if self._leads else "false"
            try:
                await pod.label(value)
                said = ""
            except (httpx.HTTPError, OSError, ValueError) as err:
                if str(err) != said:  # once, not every other second while the API server is away
                    said = str(err)
                    _log.warning("the pod %s can't be labelled %s=%s, so its Service may not find it: %s", pod.name, LABEL, value, said)
                self._changed.set()
                await asyncio.sleep(self._again_s)
