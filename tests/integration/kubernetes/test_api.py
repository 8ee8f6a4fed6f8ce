"""Calls of a whole API server: the conflicts and refusals it knows, and what a restart in between means."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufair.service.backends.kubernetes.api import MERGE_PATCH, RETRY_S, STRATEGIC_PATCH, Api, Limits
from gpufair.service.backends.kubernetes.problems import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Missing,
    Unauthorized,
    Unavailable,
)
from tests.integration.kubernetes.conftest import Server
from tests.kube.fake_api import FakeApi
from tests.kube.kubeconfig import read_kubeconfig, write_kubeconfig


@asynccontextmanager
async def opened(kubeconfig: Path, limits: Limits | None = None) -> AsyncIterator[Api]:
    api = await Api.open(kubeconfig, limits=limits or Limits())
    try:
        yield api
    finally:
        await api.close()


def pod(name: str, **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    spec = {
        "schedulerName": "gpufair",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}, "spec": spec}


def binding(name: str, node: str) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


@asynccontextmanager
async def world(server: Server) -> AsyncIterator[tuple[Api, str]]:
    """The API and the path of the pods, once the namespace has its account (pods are refused before)."""
    async with opened(server.kubeconfig) as api:
        account = f"/api/v1/namespaces/{server.namespace}/serviceaccounts/default"
        async with asyncio.timeout(30):
            while True:
                try:
                    await api.call("GET", account)
                    break
                except Missing:
                    await asyncio.sleep(0.05)
        yield api, f"/api/v1/namespaces/{server.namespace}/pods"


async def test_an_object_lives_and_dies(server: Server) -> None:
    """Made, read, patched in both ways, listed by label, deleted."""
    async with world(server) as (api, pods):
        made = await api.call("POST", pods, pod("p", labels={"a": "b"}))
        assert made["metadata"]["uid"]
        await api.call("PATCH", f"{pods}/p", {"metadata": {"labels": {"c": "d"}}}, content_type=MERGE_PATCH)
        await api.call("PATCH", f"{pods}/p", {"metadata": {"annotations": {"x": "y"}}}, content_type=STRATEGIC_PATCH)
        found = (await api.call("GET", pods, query={"labelSelector": "a=b,c=d"}))["items"]
        assert [one["metadata"]["annotations"]["x"] for one in found] == ["y"]
        await api.call("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
        with pytest.raises(Missing, match="could not get pods 'p'"):
            await api.call("GET", f"{pods}/p")


async def test_conflicts_are_told_apart(server: Server) -> None:
    """Each of them has another answer."""
    async with world(server) as (api, pods):
        made = await api.call("POST", pods, pod("p"))
        with pytest.raises(Conflict) as caught:
            await api.call("POST", pods, pod("p"))
        assert caught.value.kind == "exists"
        await api.call("PATCH", f"{pods}/p", {"metadata": {"labels": {"c": "d"}}}, content_type=MERGE_PATCH)
        with pytest.raises(Conflict) as caught:
            await api.call("PUT", f"{pods}/p", made)
        assert caught.value.kind == "stale"
        with pytest.raises(Conflict) as caught:
            await api.call("DELETE", f"{pods}/p", {"preconditions": {"uid": "another"}})
        assert caught.value.kind == "stale"
        await api.call("POST", f"{pods}/p/binding", binding("p", "n1"))
        for node in ("n1", "n2"):
            with pytest.raises(Conflict, match="n1") as caught:
                await api.call("POST", f"{pods}/p/binding", binding("p", node))
            assert caught.value.kind == "bound"


async def test_a_pod_that_is_being_deleted_is_not_bound(server: Server) -> None:
    """Held by a finalizer, it still stands in every list."""
    async with world(server) as (api, pods):
        await api.call("POST", pods, pod("p", finalizers=["gpufair.io/test"]))
        await api.call("DELETE", f"{pods}/p")
        try:
            with pytest.raises(Conflict) as caught:
                await api.call("POST", f"{pods}/p/binding", binding("p", "n1"))
            assert caught.value.kind == "deleting"
        finally:
            await api.call("PATCH", f"{pods}/p", {"metadata": {"finalizers": []}}, content_type=MERGE_PATCH)


async def test_what_makes_no_sense_is_invalid(server: Server) -> None:
    """It is named, and not asked again."""
    unequal = pod("p")
    unequal["spec"]["containers"][0]["resources"] = {
        "requests": {"nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    async with world(server) as (api, pods):
        with pytest.raises(Invalid, match=r"nvidia.com/gpu.*template"):
            await api.call("POST", pods, unequal, retry_s=RETRY_S)
        with pytest.raises(Invalid):
            await api.call("POST", pods, pod("Not A Name"), retry_s=RETRY_S)


async def test_a_missing_right_is_named(server: Server, tmp_path: Path) -> None:
    """So that it can be granted from the message."""
    async with opened(server.account(tmp_path / "weak")) as api:
        with pytest.raises(Forbidden, match="grant the service's role 'create' on 'pods/binding'") as caught:
            await api.call("POST", f"/api/v1/namespaces/{server.namespace}/pods/p/binding", binding("p", "n"))
        assert caught.value.kind == "rights"


async def test_a_wrong_token_is_no_matter_of_rights(server: Server, tmp_path: Path) -> None:
    """It has a class of its own."""
    access = read_kubeconfig(server.kubeconfig)
    path = write_kubeconfig(tmp_path / "wrong", access.url, "wrong")
    if access.context is not None:
        path = write_kubeconfig(tmp_path / "wrong", access.url, "wrong", ca_file=_authority(server, tmp_path))
    async with opened(path) as api:
        with pytest.raises(Unauthorized):
            await api.call("GET", "/api/v1/nodes")


def _authority(server: Server, folder: Path) -> Path:
    server.account(folder / "other", "other")
    return folder / "other.crt"


async def test_a_quota_that_is_used_up_is_named(server: Server) -> None:
    """It stands against everybody, whatever their rights."""
    async with world(server) as (api, pods):
        quotas = f"/api/v1/namespaces/{server.namespace}/resourcequotas"
        await api.call("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        refusal = await _refusal(api, pods)
        assert refusal.kind == "quota"
        assert "raise the ResourceQuota" in str(refusal)


async def _refusal(api: Api, pods: str) -> Forbidden:
    """A real server lets pods pass until it has seen the quota, and none until it has counted: only then its word counts."""
    async with asyncio.timeout(60):
        for n in itertools.count():
            try:
                await api.call("POST", pods, pod(f"p{n}"))
            except Forbidden as refusal:
                if "exceeded quota: q" in refusal.said:
                    return refusal
            await asyncio.sleep(0.1)
    raise AssertionError


async def test_a_version_from_before_is_gone(fake: FakeApi, tmp_path: Path) -> None:
    """In a list that was begun too long ago."""
    async with opened(fake.kubeconfig(tmp_path / "kubeconfig")) as api:
        page = await api.call("GET", "/api/v1/namespaces", query={"limit": 1})
        fake.forget_history()
        with pytest.raises(Gone, match="list again"):
            await api.call("GET", "/api/v1/namespaces", query={"limit": 1, "continue": page["metadata"]["continue"]})


async def test_a_start_that_went_through_is_found_by_its_name(fake: FakeApi, tmp_path: Path) -> None:
    """The connection broke after the server had done it: the second try meets the first one's pod, and there is one pod."""
    async with opened(fake.kubeconfig(tmp_path / "kubeconfig")) as api:
        pods = "/api/v1/namespaces/default/pods"
        fake.cut("POST", "/pods$", carried_out=True)
        with pytest.raises(Conflict) as caught:
            await api.call("POST", pods, pod("p"), retry_s=RETRY_S)
        assert caught.value.kind == "exists"
        assert len(fake.objects("pods")) == 1
        fake.cut("POST", "/pods$", carried_out=False)
        await api.call("POST", pods, pod("q"), retry_s=RETRY_S)
        assert len(fake.objects("pods")) == 2


async def test_a_restart_of_the_server_is_waited_for(fake: FakeApi, tmp_path: Path) -> None:
    """All that were on their way arrive, none twice."""
    async with opened(fake.kubeconfig(tmp_path / "kubeconfig")) as api:
        pods = "/api/v1/namespaces/default/pods"
        starts = [asyncio.create_task(api.call("POST", pods, pod(f"p{n}"), retry_s=RETRY_S)) for n in range(40)]
        await asyncio.sleep(0.01)
        await asyncio.to_thread(fake.restart, 0.5)
        done = await asyncio.gather(*starts, return_exceptions=True)
        assert all(isinstance(one, dict) or (isinstance(one, Conflict) and one.kind == "exists") for one in done), done
        assert len(fake.objects("pods")) == 40
        fake.down()
        with pytest.raises(Unavailable, match="connection failed"):
            await api.call("GET", pods, retry_s=0.5)
        fake.up()


async def test_a_flood_is_answered_as_the_server_allows(fake: FakeApi, tmp_path: Path) -> None:
    """429 with its own time to wait: nothing is lost."""
    async with opened(fake.kubeconfig(tmp_path / "kubeconfig")) as api:
        fault = fake.fail("POST", "/pods$", status=429, count=10, retry_after_s=1)
        pods = "/api/v1/namespaces/default/pods"
        await asyncio.gather(*(api.call("POST", pods, pod(f"p{n}"), retry_s=RETRY_S) for n in range(20)))
        assert fault.hits == 10
        assert len(fake.objects("pods")) == 20
