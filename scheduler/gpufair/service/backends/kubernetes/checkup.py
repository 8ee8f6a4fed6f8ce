"""Whether the cluster behind a pool is as the service needs it, asked for anew: for ``gpufair doctor``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from gpufair.core.errors import GpufairError
from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.problems import Forbidden, Missing
from gpufair.service.backends.kubernetes.rights import CLUSTER, NAMESPACE, OTHERS, Right
from gpufair.service.settings.kubernetes_options import KubernetesOptions

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """What is true of the cluster, and the next step; "": there is none."""

    level: Literal["ok", "note", "warning", "problem"]
    said: str
    advice: str = ""


async def examine(options: KubernetesOptions) -> AsyncIterator[Found]:
    """All findings, by the settings and the account that a service of this configuration has here.

    Raises:
        NoApiServer: The settings lead nowhere.
        KubernetesProblem: The API server is not heard, or refuses to be asked.
    """
    for found in places(options):
        yield found
    api = await Api.open(options.kubeconfig, options.context)
    try:
        with suppress(Forbidden):  # that right is missed below
            yield await _lease(api, options)
        lacking = [one async for one in _lacking(api, options)]
        for right, verb, where in lacking:
            yield Found(
                "problem",
                f"this account may not {verb} {right.resource}{where}, which the service needs {right.why}",
                "apply the roles of deploy/, or run this where the service runs (kubectl exec)",
            )
        if not lacking:
            yield Found("ok", "this account has all rights that the service needs there")
    finally:
        await api.close()


def places(options: KubernetesOptions) -> Iterable[Found]:
    """What the configuration names and this machine can tell."""
    host = urlsplit(options.service_url).hostname or ""
    if _loopback(host):
        yield Found(
            "problem",
            f"service_url names {host}, which is each pod itself: no pod reaches the service there",
            "name the address of its Service, like https://gpufair.gpufair.svc:8890",
        )
    if options.claim_path is not None and not Path(options.claim_path).is_dir():
        yield Found(
            "problem",
            f"claim_path {options.claim_path} is not there: records and checkpoints would not be on the volume {options.claim}",
            "mount the volume there, or correct claim_path; on another machine than the service's this says nothing",
        )


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def _lease(api: Api, options: KubernetesOptions) -> Found:
    name = f"{options.namespace}/{options.lease}"
    try:
        answer = await api.call("GET", _LEASES.format(options.namespace, options.lease), timeout_s=_TIMEOUT_S)
    except Missing:
        advice = f"see that a service runs, and that the namespace is there: kubectl get namespace {options.namespace}"
        return Found("problem", f"there is no Lease {name}: no service has ever led there", advice)
    spec = answer.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    if not holder:
        return Found("problem", f"nobody holds the Lease {name}: nothing is changed in Kubernetes", "look at the service's log")
    age_s = _age_s(str(spec.get("renewTime") or ""))
    if age_s is None or age_s > options.lease_for / 1000:
        since = "never" if age_s is None else f"{age_s:.0f} s ago"
        return Found(
            "problem",
            f"the Lease {name} of {holder} was renewed {since}: nothing is changed in Kubernetes",
            "look at the log of the service that leads, and at the clocks",
        )
    return Found("ok", f"{holder} holds the Lease {name}")


def _age_s(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (datetime.now(UTC) - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds()


async def _lacking(api: Api, options: KubernetesOptions) -> AsyncIterator[tuple[Right, str, str]]:
    """Rights that the account does not have, as the API server itself judges them."""
    wanted = [("", CLUSTER), (options.namespace, NAMESPACE), *((name, OTHERS) for name in sorted(options.namespaces))]
    for namespace, rights in wanted:
        for right in rights:
            for verb in right.verbs:
                if not await _allowed(api, right, verb, namespace):
                    yield right, verb, f" in namespace {namespace}" if namespace else " of the whole cluster"


async def _allowed(api: Api, right: Right, verb: str, namespace: str) -> bool:
    resource, _, below = right.resource.partition("/")
    attributes = {"verb": verb, "group": right.group, "resource": resource, "subresource": below, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await api.call("POST", _REVIEWS, review, timeout_s=_TIMEOUT_S)
    return bool((answer.get("status") or {}).get("allowed"))


async def findings(options: KubernetesOptions) -> list[Found]:
    """All of them; that the server cannot be asked is one, too."""
    found: list[Found] = []
    try:
        async for one in examine(options):
            found.append(one)  # noqa: PERF401  # what was found before a failure counts
    except GpufairError as err:
        found.append(Found("problem", str(err), "see kubeconfig and context of [pool.kubernetes], and the network"))
    return found
