"""What a container has: its GPUs, whoever says which they are, and a home for an account without a name."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpufair.node.agent_config import BadConfig
from gpufair.node.gpus import Gpu
from gpufair.node.pod_config import PodConfig
from gpufair.node.pod_place import gpus_of, make_home

A100 = [Gpu(f"GPU-{number}", "A100", 1) for number in range(2)]


@pytest.mark.parametrize(
    ("wanted", "environ", "seen", "ids", "kind"),
    [
        (2, {}, A100, ("GPU-0", "GPU-1"), "A100"),
        (None, {}, A100, ("GPU-0", "GPU-1"), "A100"),
        (None, {}, [], (), ""),
        (0, {"NVIDIA_VISIBLE_DEVICES": "all"}, A100, (), ""),  # an image for GPUs, without any
        (2, {"NVIDIA_VISIBLE_DEVICES": "all"}, A100, ("GPU-0", "GPU-1"), "A100"),
        (2, {"NVIDIA_VISIBLE_DEVICES": "void"}, A100, ("GPU-0", "GPU-1"), "A100"),
        (1, {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, A100, ("GPU-1",), "A100"),
        (1, {"NVIDIA_VISIBLE_DEVICES": "MIG-7d5b-11"}, A100[:1], ("MIG-7d5b-11",), "A100"),
        (2, {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, [], ("GPU-a", "GPU-b"), ""),
    ],
)
def test_the_gpus_of_a_container(
    wanted: int | None, environ: dict[str, str], seen: list[Gpu], ids: tuple[str, ...], kind: str
) -> None:
    assert gpus_of(wanted, named=False, environ=environ, found=lambda: seen) == (ids, kind, "")


@pytest.mark.parametrize(("wanted", "seen"), [(1, A100), (1, []), (3, A100)])
def test_gpus_that_are_not_what_was_asked_for(wanted: int, seen: list[Gpu]) -> None:
    """A pod that sees its neighbours' GPUs would take them."""
    ids, _, problem = gpus_of(wanted, named=False, environ={"NVIDIA_VISIBLE_DEVICES": "all"}, found=lambda: seen)
    assert ids == ()
    assert f"asked for {wanted} GPUs, and {len(seen)} are seen" in problem


def test_virtual_ones() -> None:
    assert gpus_of(2, named=True)[0] == ("virtual-0", "virtual-1")
    assert gpus_of(None, named=True)[0] == ()


def test_a_home_is_made_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some number of the cluster's choice, no entry in passwd, a root that is read-only."""
    environ: dict[str, str] = {"HOME": "/"}

    def nobody() -> str:
        raise KeyError("no such uid")

    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(tempfile, "tempdir", None)
    make_home(tmp_path, environ)
    name = f"uid-{os.getuid()}"
    assert environ == {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "USER": name, "LOGNAME": name}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert tempfile.tempdir == str(tmp_path / "tmp")


def test_a_home_that_is_there_is_left(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    environ = {"HOME": str(own)}
    make_home(tmp_path, environ)
    assert environ == {"HOME": str(own)}


GOOD: dict[str, Any] = {
    "pod": "gpufair-w-1-0",
    "workload": "w",
    "incarnation": 1,
    "service": {"url": "https://gpufair:8890", "ca": "ca.crt"},
    "token_file": "token",
    "folder": "/run/gpufair",
    "grace_s": 120,
}


def test_a_config_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(GOOD))
    found = PodConfig.read(path, {"GPUFAIR_POD_IP": "10.1.2.3"})
    assert (found.host, found.service["ca"], found.token_file) == ("10.1.2.3", str(tmp_path / "ca.crt"), tmp_path / "token")
    path.write_text(json.dumps(found.written()))
    assert PodConfig.read(path, {}) == found
    with pytest.raises(BadConfig, match="the pod's token cannot be read"):
        found.token()
    (tmp_path / "token").write_text("abc\n")
    assert found.token() == "abc"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"service": {}}, "has to name a url"),
        ({"grace_s": 0}, "have to be above 0"),
        ({"linger_s": "x"}, "ValueError"),
        ({"incarnation": None}, "TypeError"),
        ({"ports": [1]}, "ValueError"),
    ],
)
def test_a_config_that_makes_no_sense(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(BadConfig, match=said):
        PodConfig.read(path, {"GPUFAIR_POD_IP": "10.1.2.3"})
    path.write_text(json.dumps(GOOD))
    with pytest.raises(BadConfig, match=r"from status\.podIP"):
        PodConfig.read(path, {})


def test_what_the_image_of_a_kernel_has_to_hold() -> None:
    """The agent in a pod brings in no part of the service, of its client or of Jupyter's server, and few libraries."""
    code = """
import sys
import gpufair.node.pod
import gpufair.node.supervisor, gpufair.node.session, gpufair.node.command_run
from gpufair.node.certificates import pair
pair("10.1.2.3")
ours = sorted(name for name in sys.modules if name.split(".")[0] in {"gpufair", "jupyter_gpufair"})
tops = sorted({name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"gpufair", "__main__"})
print([name for name in ours if name.split(".")[:2] not in (["gpufair"], ["gpufair", "node"], ["gpufair", "core"], ["gpufair", "wire"], ["gpufair", "paths"])])
print(*[name for name in tops if not name.startswith("_")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    foreign, libraries = done.stdout.splitlines()
    assert foreign == "[]"
    # What cryptography and pyzmq are made of comes with them.
    assert set(libraries.split()) - {"cffi", "cython_runtime", "typing_extensions"} == {"cryptography", "zmq"}
