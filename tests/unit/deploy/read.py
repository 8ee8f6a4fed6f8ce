"""What is in `deploy/`, read as its readers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
CHART = DEPLOY / "helm" / "gpufair"

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def base() -> list[Object]:
    """The objects that `base` lists in files; not the ConfigMap, which kustomize makes."""
    listed = documents(BASE / "kustomization.yaml")[0]["resources"]
    return [one for name in listed for one in documents(BASE / name)]


def the(objects: list[Object], kind: str, name: str = "gpufair") -> Object:
    """The one of this kind and name."""
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def kustomizations() -> list[Path]:
    """All of them."""
    return sorted((DEPLOY / "kubernetes").rglob("kustomization.yaml"))
