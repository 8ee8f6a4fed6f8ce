"""Plain HTTP to an API server, fake or real, for tests and for the fake kubelet: no library between them and it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from tests.kube.kubeconfig import read_kubeconfig
from tests.kube.resources import BY_PLURAL

MERGE_PATCH = "application/merge-patch+json"
TIMEOUT_S = 20.0
AT_ONCE = 8


def path_of(plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """`/api/v1/namespaces/NAMESPACE/pods/NAME/status`, from what is given."""
    resource = BY_PLURAL[plural]
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else "/api/v1"
    parts = [*(["namespaces", namespace] if namespace else []), plural, *([name] if name else []), *([subresource] if subresource else [])]
    return "/".join([root, *parts])


class KubeClient:
    """Answers as they come; ``ok`` checks them."""

    def __init__(self, kubeconfig: Path) -> None:
        access = read_kubeconfig(kubeconfig)
        self.url = access.url
        self._http = httpx.Client(base_url=access.url, headers=access.headers, verify=access.context or True, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, content_type: str = "application/json") -> httpx.Response:
        content = None if body is None else json.dumps(body)
        return self._http.request(method, path, content=content, params=query, headers={"Content-Type": content_type} if content else None)

    def ok(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, content_type: str = "application/json") -> dict[str, Any]:
        answer = self.call(method, path, body, query=query, content_type=content_type)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        value: dict[str, Any] = answer.json()
        return value

    def create(self, plural: str, namespace: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        return self.ok("POST", path_of(plural, namespace), obj)

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """None where it is not there."""
        answer = self.call("GET", path_of(plural, namespace, name))
        if answer.status_code == 404:
            return None
        assert answer.is_success, answer.text
        value: dict[str, Any] = answer.json()
        return value

    def list(self, plural: str, namespace: str = "", **query: Any) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.ok("GET", path_of(plural, namespace), query=query)["items"]
        return items

    def patch(self, plural: str, namespace: str, name: str, patch: Mapping[str, Any], subresource: str = "") -> dict[str, Any]:
        """A merge patch."""
        return self.ok("PATCH", path_of(plural, namespace, name, subresource), patch, content_type=MERGE_PATCH)

    def delete(self, plural: str, namespace: str, name: str, grace_s: int | None = None) -> httpx.Response:
        return self.call("DELETE", path_of(plural, namespace, name), None if grace_s is None else {"gracePeriodSeconds": grace_s})

    def bind(self, namespace: str, pod: str, node: str) -> httpx.Response:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        return self.call("POST", path_of("pods", namespace, pod, "binding"), binding)

    @contextmanager
    def watch(self, plural: str, namespace: str = "", **query: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a watch that is open when this returns, until the server ends it."""
        timeout = httpx.Timeout(TIMEOUT_S, read=float(query.get("timeoutSeconds", 60)) + TIMEOUT_S)
        with self._http.stream("GET", path_of(plural, namespace), params={"watch": "1", **query}, timeout=timeout) as answer:
            if not answer.is_success:
                answer.read()
            assert answer.is_success, f"{answer.status_code} {answer.text}"
            yield (json.loads(line) for line in answer.iter_lines() if line)


class Gone(Exception):
    """404, or another object by now (409)."""


class Refusal(Exception):
    """An answer that trying again does not mend."""


class KubeletClient:
    """The fake kubelet's: tries again until the API server answers, as kubelets do.

    Plain calls go through `http.client` in a few threads: for hundreds of nodes in one process an async client is slow.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._access = read_kubeconfig(kubeconfig)
        self._threads = ThreadPoolExecutor(AT_ONCE, "kubelet")
        self._of_thread = threading.local()
        self._connections: list[HTTPConnection] = []
        self._http = httpx.AsyncClient(
            base_url=self._access.url, headers=self._access.headers, verify=self._access.context or True, timeout=TIMEOUT_S, trust_env=False
        )

    async def close(self) -> None:
        await self._http.aclose()
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

    async def call(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> dict[str, Any]:
        """Raises Gone and Refusal. An API server that is away or overloaded is waited for."""
        content = None if body is None else json.dumps(body).encode()
        loop, pause_s = asyncio.get_running_loop(), 0.05
        while True:
            with suppress(OSError, HTTPException):
                status, text = await loop.run_in_executor(self._threads, self._request, method, path, content, content_type)
                if status < 300:
                    value: dict[str, Any] = json.loads(text)
                    return value
                # A status of another object by this name is refused by its uid.
                if status in {404, 409, 410} or (status == 422 and "metadata.uid" in text):
                    raise Gone(text)
                if status < 500 and status != 429:
                    raise Refusal(f"{method} {path}: {status} {text}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _request(self, method: str, path: str, content: bytes | None, content_type: str) -> tuple[int, str]:
        connection: HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = self._connection()
            self._connections.append(connection)
        try:
            connection.request(method, path, content, {**self._access.headers, **({"Content-Type": content_type} if content else {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):
            connection.close()  # the next request opens it again
            raise

    def _connection(self) -> HTTPConnection:
        url = urlsplit(self._access.url)
        if self._access.context is not None:
            return HTTPSConnection(url.hostname or "", url.port, timeout=TIMEOUT_S, context=self._access.context)
        return HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_S)

    async def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Those of one watch. It ends when the stream does, however that is."""
        timeout = httpx.Timeout(TIMEOUT_S, read=120.0)
        with suppress(httpx.TransportError):
            async with self._http.stream("GET", path, params=dict(query), timeout=timeout) as answer:
                if not answer.is_success:
                    await asyncio.sleep(0.2)
                    return
                async for line in answer.aiter_lines():
                    if line:
                        yield json.loads(line)
