"""Images: ground rules that a file can show. Nothing is built here; that takes a container engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.unit.deploy.read import DEPLOY, ROOT

DOCKERFILE = DEPLOY / "images" / "Dockerfile"
REQUIREMENTS = DEPLOY / "images" / "kernel-requirements.txt"
HADOLINT = shutil.which("hadolint")


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name; the first is FROM."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text(encoding="utf-8"))
    found: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found[rest.split(" AS ")[1]] = []
        if word and not word.startswith("#"):
            list(found.values())[-1].append((word, rest.strip()))
    return found


@pytest.mark.parametrize("target", ["service", "jupyter", "kernel"])
def test_an_image_runs_as_nobody_special(target: str) -> None:
    """The user is a number, which Kubernetes can check, and that of the files on the shared volume."""
    assert [rest for word, rest in stages()[target] if word == "USER"] == ["1000:1000"]


def test_what_is_built_upon_is_named_exactly() -> None:
    for name, lines in stages().items():
        image = lines[0][1].split()[0]
        assert image in stages() or re.fullmatch(r"[a-z]+:\d+(\.\d+)?-[a-z-]+", image), f"{name}: {image}"
        assert not [rest for word, rest in lines if word == "ADD" or re.search(r"curl|wget|sudo", rest)], name


def test_what_is_copied_is_there() -> None:
    ignored = (DEPLOY / "images" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    for lines in stages().values():
        for rest in [rest for word, rest in lines if word == "COPY" and "--from=" not in rest]:
            source = rest.split()[0]
            assert (ROOT / source).exists(), source
            assert source.partition("/")[0] not in ignored, source


def test_nothing_that_the_wheel_needs_is_kept_from_it() -> None:
    ignored = set((DEPLOY / "images" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split())
    needed = {"labextension", "scheduler", "jupyter_gpufair", "pyproject.toml", "README.md", "LICENSE"}
    assert not needed & ignored


def closure() -> set[str]:
    """Names of the distributions that the kernel's image has: those listed, and what they ask for."""
    lines = [line.partition("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()]
    waiting, found = [line for line in lines if line], set()
    while waiting:
        line = waiting.pop()
        if "extra ==" in line:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in found:
            continue
        try:
            asked = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another system or Python
        found.add(name)
        waiting += asked
    return found


ONLY = """
import sys
allowed = set({allowed!r})
class Refused:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {known!r} and top not in allowed:
            raise ModuleNotFoundError(f"the kernel's image has no {{top}}", name=top)
sys.meta_path.insert(0, Refused())
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import runpy; sys.argv = ['pod', '--help']; runpy.run_module('gpufair.node.pod', run_name='__main__')",
        "import gpufair.node.supervisor, gpufair.node.agent, gpufair.node.certificates, gpufair.node.tunnel",
        "import gpufair.node.checkpoint, obstore, zstandard, cryptography",
        "import jupyter_gpufair.kernel, jupyter_gpufair.kernel.launch",
        "import jupyter_gpufair.batch, jupyter_gpufair.batch.runner",
    ],
    ids=["pod", "supervisor", "checkpoint", "kernel", "batch"],
)
def test_the_kernels_image_has_what_it_runs(statement: str) -> None:
    """Every other distribution of this environment is refused, as if it were not installed."""
    known = {module: {re.sub(r"[-_.]+", "-", one).lower() for one in of} for module, of in metadata.packages_distributions().items()}
    there = closure() | {"jupyter-gpufair"}
    allowed = sorted(module for module, of in known.items() if of & there)
    code = ONLY.format(allowed=allowed, known=set(known)) + statement
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=Path(ROOT) / "tests")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(HADOLINT is None, reason="there is no hadolint here: the Dockerfile is not linted by this run")
def test_hadolint_finds_nothing() -> None:
    assert HADOLINT is not None
    subprocess.run([HADOLINT, "--failure-threshold", "warning", str(DOCKERFILE)], check=True)
