"""The Helm chart: what can be said of it without Helm, and lint and rendering where `helm` is at hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.unit.deploy.read import CHART, DEPLOY, base, documents

TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
OPENS, ACTION = {"if", "with", "range", "define"}, re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
HELM = shutil.which("helm")


def values() -> dict:
    return documents(CHART / "values.yaml")[0]


def schema() -> dict:
    read: dict = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return read


def test_the_defaults_keep_to_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(values(), schema())


def test_each_value_is_in_the_schema() -> None:
    """A slip in somebody's values is an error there, so nothing that there is may be missing."""

    def compared(of: dict, by: dict, at: str = "") -> None:
        for name, value in of.items():
            assert name in by["properties"], at + name
            if isinstance(value, dict) and "properties" in by["properties"][name]:
                compared(value, by["properties"][name], f"{at}{name}.")

    compared(values(), schema())


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 3},
        {"image": {"repository": "x", "tag": "latest"}},
        {"postgresql": {"url": "postgresql://gpufair:secret@db/gpufair"}},
        {"pool": {"name": "default", "image": "x", "tunnelPorts": [42000]}},
    ],
    ids=["unknown", "latest", "password", "ports"],
)
def test_a_slip_is_an_error(wrong: dict) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values() | wrong, schema())


@pytest.mark.parametrize("path", [*TEMPLATES, *(CHART / "templates").glob("_*")], ids=lambda path: path.name)
def test_each_block_of_a_template_ends(path: Path) -> None:
    """The slip that is made most; all else only Helm can say."""
    depth = 0
    for action in ACTION.findall(path.read_text(encoding="utf-8")):
        word = action.split(maxsplit=1)[0]
        depth += (word in OPENS) - (word == "end")
        assert depth >= 0, f"an end too many in {path.name}"
    assert depth == 0, f"an end is missing in {path.name}"


def test_a_template_uses_values_that_there_are() -> None:
    for path in (CHART / "templates").iterdir():
        for name in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text(encoding="utf-8")):
            found = values()
            for part in name.split("."):
                assert part in found, f"{path.name}: .Values.{name}"
                found = found[part]


def test_the_chart_makes_what_the_plain_manifests_make() -> None:
    """The same kinds and names, so that what is said of the one holds of the other. (The namespace is Helm's to make.)"""
    plain = {(one["kind"], one["metadata"]["name"]) for one in base() if one["kind"] != "Namespace"}
    plain.add(("ConfigMap", "gpufair-config"))
    for part in ("internet", "monitoring", "cert-manager"):
        for path in (DEPLOY / "kubernetes" / "components" / part).glob("[!k]*.yaml"):
            plain |= {(one["kind"], one["metadata"]["name"]) for one in documents(path)}
    plain |= {(one["kind"], one["metadata"]["name"]) for one in documents(DEPLOY / "kubernetes" / "others" / "role.yaml")}
    made: set[tuple[str, str]] = set()
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8").replace("-{{ .Release.Namespace }}", "")
        made |= set(re.findall(r"^kind: (\w+)\nmetadata:\n  name: ([\w-]+)$", text, re.MULTILINE))
    assert made == plain


@pytest.mark.skipif(HELM is None, reason="there is no helm here: the chart is neither linted nor rendered by this run")
@pytest.mark.parametrize("given", [{}, {"postgresql.enabled": "false", "replicas": "1", "networkPolicy.internet": "true"}])
def test_helm_renders_it(given: dict[str, str]) -> None:
    assert HELM is not None
    said = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    subprocess.run([HELM, "lint", str(CHART), *said], check=True)
    done = subprocess.run([HELM, "template", "gpufair", str(CHART), *said], check=True, capture_output=True, text=True)
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout) if one]
    assert kinds.count("Deployment") == 1
    assert ("PodDisruptionBudget" in kinds) is (not given)
