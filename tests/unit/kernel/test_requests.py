"""What comes in over the control channel is checked before it is used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpufair.kernel import requests
from jupyter_gpufair.kernel.requests import BadRequest

GOOD: dict[str, Any] = {"directory": "/d", "id": "c1", "sequence": 3, "key_file": "/k"}


def test_a_good_request() -> None:
    asked = requests.checkpoint_request({**GOOD, "wait_s": 2, "unknown": "ignored"})
    assert (asked.directory, asked.id, asked.sequence, asked.wait_s, asked.hold_s) == ("/d", "c1", 3, 2.0, 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("directory", None),
        ("directory", ""),
        ("directory", "x" * 5000),
        ("id", 5),
        ("sequence", -1),
        ("sequence", True),
        ("sequence", "1"),
        ("key_file", ["k"]),
        ("wait_s", -1),
        ("wait_s", float("nan")),
        ("wait_s", "1"),
        ("hold_s", float("inf")),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(BadRequest, match=field):
        requests.checkpoint_request({**GOOD, field: value})


def test_notices() -> None:
    assert requests.notice_request({"text": "soon", "deadline_s": 5}).deadline_s == 5.0
    assert requests.notice_request({}).text == ""
    assert requests.notice_request({"text": "", "deadline_s": None}).deadline_s == 0.0
    for bad in ({"text": 5}, {"text": "x" * 5000}, {"deadline_s": "soon"}, {"deadline_s": float("inf")}):
        with pytest.raises(BadRequest):
            requests.notice_request(bad)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("ab" * 32 + "\n")
    path.chmod(0o600)
    return path


def test_the_key(key_file: Path) -> None:
    assert requests.read_key(str(key_file)) == b"\xab" * 32


def test_a_key_that_others_could_read_or_replace_is_refused(key_file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(key_file)
    with pytest.raises(BadRequest, match="cannot be opened"):
        requests.read_key(str(link))
    key_file.chmod(0o640)
    with pytest.raises(BadRequest, match="chmod 600"):
        requests.read_key(str(key_file))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadRequest, match="plain file"):
        requests.read_key(str(tmp_path / "pipe"))
    with pytest.raises(BadRequest, match="No such file"):
        requests.read_key(str(tmp_path / "none"))


def test_a_broken_key_is_not_shown(key_file: Path) -> None:
    key_file.write_text("secret-but-not-hex")
    with pytest.raises(BadRequest) as caught:
        requests.read_key(str(key_file))
    assert "secret" not in str(caught.value)


def test_the_kernel_needs_no_server() -> None:
    """It runs in the user's environment, which may hold ipykernel, cloudpickle and fsspec only; and starts lightly."""
    code = (
        "import sys, jupyter_gpufair.kernel.launch\n"
        "early = {m.split('.')[0] for m in sys.modules}\n"
        "import gpufair.node.checkpoint, jupyter_gpufair.kernel.session\n"
        "print([sorted(early), sorted({m.split('.')[0] for m in sys.modules})])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    early, late = ast.literal_eval(done.stdout)
    banned = {"jupyter_server", "jupyterlab", "httpx", "fastapi", "sqlalchemy", "pydantic", "dask", "numpy", "nbclient"}
    assert not banned & set(late)
    assert not {"cloudpickle", "fsspec"} & set(early)
