"""What is installed, and what importing a part of it costs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def loaded_after(statement: str) -> set[str]:
    """Top-level names and dotted names of all modules loaded once ``statement`` ran in a new interpreter."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT / "tests")
    return set(done.stdout.split())


def test_the_scheduler_folder_is_no_package() -> None:
    """`import scheduler.gpufair` would make every class exist twice."""
    assert not (ROOT / "scheduler" / "__init__.py").exists()


def test_lock_files_name_no_registry() -> None:
    """A lock made behind a mirror must install elsewhere, and the other way round."""
    lock = (ROOT / "labextension" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert not re.search(r"https?://[^\"]*\.tgz", lock)
    assert '"integrity"' in lock, "without hashes a lock protects nobody"
    assert not (ROOT / "uv.lock").exists()


def test_both_halves_have_one_version() -> None:
    """The wheel's version is the front end's, so a stale bundle shows."""
    from importlib.metadata import version

    package = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))
    assert version("jupyter-gpufair") == package["version"]


def test_importing_the_packages_imports_nothing_else() -> None:
    """A kernel pays for what it uses, not for the server."""
    before = loaded_after("pass")
    ours = {"jupyter_gpufair", "gpufair"}
    extra = loaded_after("import jupyter_gpufair, gpufair") - before
    assert {name.partition(".")[0] for name in extra} - sys.stdlib_module_names == ours
    assert {name for name in extra if name.partition(".")[0] in ours} == ours


def test_a_service_without_kubernetes_does_not_load_it() -> None:
    """It is started with each laptop's notebook server."""
    assert "kubernetes" not in loaded_after("import gpufair.service.serve")


SERVER_SIDE = {
    "dask",
    "distributed",
    "fastapi",
    "httpx",
    "jupyter_server",
    "jupyterlab",
    "kubernetes",
    "papermill",
    "pydantic",
    "sqlalchemy",
    "starlette",
    "typer",
    "uvicorn",
    "gpufair.cli",
    "gpufair.client",
    "gpufair.service",
    "jupyter_gpufair.app",
    "jupyter_gpufair.provisioner",
}


def test_a_kernel_loads_no_server() -> None:
    """A user's environment needs cloudpickle, fsspec and ipykernel beside the package, nothing more."""
    assert loaded_after("import jupyter_gpufair.kernel as kernel; assert kernel.__file__") & SERVER_SIDE == set()


def test_a_supervisor_loads_no_server() -> None:
    """One runs beside each kernel, so its memory counts as often."""
    assert loaded_after("import gpufair.node as node; assert node.__file__") & SERVER_SIDE == set()


def test_the_core_imports_the_standard_library_only() -> None:
    """The simulator, the service and a replay run the same code, wherever Python runs."""
    foreign: dict[str, set[str]] = {}
    for path in (ROOT / "scheduler" / "gpufair" / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            tops = {name.partition(".")[0] for name in names if not f"{name}.".startswith("gpufair.core.")}
            if tops - sys.stdlib_module_names:
                foreign[path.name] = tops - sys.stdlib_module_names
    assert foreign == {}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout. It takes the bundle that is there, so it needs no Node."""
    if not (ROOT / "jupyter_gpufair" / "labextension" / "package.json").exists():
        pytest.fail("the front end is not built; run `make install` first")
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(build, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_all_that_jupyter_looks_for(wheel: zipfile.ZipFile) -> None:
    """An install whose front-end build was skipped succeeds all the same, so the contents are looked at."""
    names = {re.sub(r"^[^/]*\.data/data/", "", name) for name in wheel.namelist()}
    assert names >= {
        "gpufair/__init__.py",
        "gpufair/py.typed",
        "gpufair/service/static/index.html",
        "gpufair/service/static/page.css",
        "gpufair/service/static/page.js",
        "jupyter_gpufair/__init__.py",
        "jupyter_gpufair/labextension/widget.css",
        "jupyter_gpufair/labextension/widget.js",
        "jupyter_gpufair/py.typed",
        "etc/jupyter/jupyter_server_config.d/jupyter_gpufair.json",
        "share/jupyter/kernels/gpufair-1gpu/kernel.json",
        "share/jupyter/kernels/gpufair-cpu/kernel.json",
        "share/jupyter/labextensions/@gpufair/labextension/install.json",
        "share/jupyter/labextensions/@gpufair/labextension/package.json",
        "share/jupyter/labextensions/@gpufair/labextension/static/style.js",
    }
    assert not [name for name in names if name.startswith(("scheduler/", "tests/")) or "node_modules" in name]


def test_the_wheel_announces_its_entry_points(wheel: zipfile.ZipFile) -> None:
    """The provisioner is found by name only."""
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    text = wheel.read(path).decode()
    assert "gpufair = gpufair.cli:main" in text
    assert "gpufair-provisioner = jupyter_gpufair.provisioner:GpufairProvisioner" in text


@pytest.mark.parametrize("name", ["gpufair-1gpu", "gpufair-cpu"])
def test_the_kernelspecs_are_installed(name: str) -> None:
    """They appear without `jupyter kernelspec install`, in editable installs too."""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(name)
    assert spec.metadata["kernel_provisioner"]["provisioner_name"] == "gpufair-provisioner"
    assert spec.argv[1:3] == ["-m", "jupyter_gpufair.kernel"]
