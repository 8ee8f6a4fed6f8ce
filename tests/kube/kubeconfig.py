"""Kubeconfig files, written and read."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, url: str, token: str, *, ca_file: Path | None = None, namespace: str = "default") -> Path:
    cluster: dict[str, Any] = {"server": url}
    if ca_file is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


@dataclass(frozen=True)
class Access:
    """How to reach an API server: what the current context of a kubeconfig says. ``context`` is None for plain HTTP."""

    url: str
    token: str | None
    context: ssl.SSLContext | None
    # The certificate of the authority, as text.
    authority: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def read_kubeconfig(path: Path) -> Access:
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    url = cluster["server"].rstrip("/")
    if not url.startswith("https:"):
        return Access(url, user.get("token"), None)
    tls = ssl.create_default_context()
    authority = _text(cluster, "certificate-authority", path)
    if authority:
        tls.load_verify_locations(cadata=authority)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = (_text(user, name, path) for name in ("client-certificate", "client-key"))
    if certificate and key:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(f"{certificate}\n{key}\n")
            pair.flush()
            tls.load_cert_chain(pair.name)
    return Access(url, user.get("token"), tls, authority)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _text(user: dict[str, Any], name: str, path: Path) -> str | None:
    if data := user.get(f"{name}-data"):
        return base64.b64decode(data).decode()
    return (path.parent / user[name]).read_text() if name in user else None
