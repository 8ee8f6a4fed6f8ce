"""Where the API server is: kubeconfigs, contexts, the pod's own account, and tokens that grow old."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
import yaml
from kubernetes.config import incluster_config

from gpufair.service.backends.kubernetes import connection
from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.asked import Asked
from gpufair.service.backends.kubernetes.connection import Place, connect
from gpufair.service.backends.kubernetes.problems import NoApiServer, Unauthorized
from tests.kube.kubeconfig import write_kubeconfig
from tests.unit.kubernetes.raw_server import raw_server, says

ASKED = Asked("get", "pods")


def test_the_context_chooses_server_account_and_namespace(tmp_path: Path) -> None:
    """One file may know several clusters."""
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://one:6443", "t1", namespace="n1")
    config = yaml.safe_load(path.read_text())
    config["clusters"].append({"name": "two", "cluster": {"server": "https://two:6443/"}})
    config["users"].append({"name": "two", "user": {"token": "t2"}})
    config["contexts"].append({"name": "two", "context": {"cluster": "two", "user": "two"}})
    path.write_text(yaml.safe_dump(config))
    usual, other = connect(Place(path), 4), connect(Place(path, "two"), 4)
    assert (usual.url, usual.namespace, usual.headers(ASKED)) == (
        "https://one:6443",
        "n1",
        {"authorization": "Bearer t1"},
    )
    assert (other.url, other.namespace, other.headers(ASKED)) == (
        "https://two:6443",
        "default",
        {"authorization": "Bearer t2"},
    )
    usual.close()
    other.close()


@pytest.mark.parametrize(
    ("text", "context", "says"),
    [
        (None, "", "there is no such file"),
        ("", "", "Exception"),
        ("a: [", "", "ParserError"),
        ("[1, 2]", "", "Error"),
        ("just words", "", "Error"),
        ("current-context: x", "", "Exception"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: none}}]\nclusters: []", "", "none"),
        ("whole", "nowhere", "nowhere"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_named(tmp_path: Path, text: str | None, context: str, says: str) -> None:
    """With its path, and what to do."""
    path = tmp_path / "kubeconfig"
    if text == "whole":
        write_kubeconfig(path, "https://one", "t1")
    elif text is not None:
        path.write_text(text)
    with pytest.raises(NoApiServer) as caught:
        connect(Place(path, context), 4)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "name a kubeconfig" in str(caught.value)


def test_without_a_kubeconfig_the_own_cluster_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the account of the pod, whose token is read anew as it is renewed."""
    token, ca, namespace = tmp_path / "token", tmp_path / "ca.crt", tmp_path / "namespace"
    token.write_text("first")
    ca.write_text("some CA")
    namespace.write_text("gpufair\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setattr(connection, "_ACCOUNT_NAMESPACE", namespace)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ours = connect(Place(), 4, environ)
    assert (ours.url, ours.namespace) == ("https://10.0.0.1:443", "gpufair")
    assert ours.headers(ASKED)["authorization"].lower() == "bearer first"
    ours.close()
    token.unlink()
    with pytest.raises(NoApiServer, match=r"the service account of this pod.*token file"):
        connect(Place(), 4, environ)


def _program(folder: Path, body: str) -> Path:
    program = folder / "credentials"
    program.write_text(f"#!{sys.executable}\n{body}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _with_program(path: Path, url: str, program: Path) -> Path:
    write_kubeconfig(path, url, "unused")
    config = yaml.safe_load(path.read_text())
    config["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(program)}
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def test_a_token_that_has_expired_is_renewed_before_a_call(tmp_path: Path) -> None:
    """Clouds give tokens for minutes, by a program; the service runs for months."""
    counter = tmp_path / "count"
    counter.write_text("0")
    program = _program(
        tmp_path,
        f"""import json, pathlib
path = pathlib.Path({str(counter)!r})
count = int(path.read_text()) + 1
path.write_text(str(count))
status = {{"token": f"token-{{count}}", "expirationTimestamp": "2020-01-01T00:00:00Z"}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}}))
""",
    )
    async with raw_server(says({})) as server:
        api = await Api.open(_with_program(tmp_path / "kubeconfig", server.url, program))
        await api.call("GET", "/version")
        await api.call("GET", "/version")
        await api.close()
    first, second = (request.headers["authorization"] for request in server.requests)
    assert first.startswith("Bearer token-")
    assert first != second


async def test_a_token_file_that_goes_away_is_a_problem_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an exception of some thread."""
    async with raw_server(says({})) as server:
        api = await Api.open(write_kubeconfig(tmp_path / "kubeconfig", server.url, "t"))

        def gone(configuration: object) -> None:
            raise FileNotFoundError(2, "no such file", "/var/run/secrets/token")

        monkeypatch.setattr(api.connection._configuration, "refresh_api_key_hook", gone)
        with pytest.raises(Unauthorized, match=r"cannot be renewed.*no such file"):
            await api.call("GET", "/version")
        await api.close()
    assert server.requests == []
