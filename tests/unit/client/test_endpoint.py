"""Which service a client talks to, and which token file it trusts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpufair.client import Endpoint, Unavailable, discover
from gpufair.client.endpoint import from_folder
from gpufair.client.health import health
from gpufair.paths import private_dir, state_dir
from tests.unit.client.fake_service import FakeService, Reply


def announce(folder: Path, **fields: object) -> Path:
    path = folder / "service.json"
    path.write_text(
        json.dumps({"url": "http://127.0.0.1:9", "token": "t", "pid": os.getpid(), "started_s": 1.0} | fields)
    )
    path.chmod(0o600)
    return path


def test_arguments_beat_the_environment_which_beats_the_folder(tmp_path: Path) -> None:
    """The documented order; an explicit folder means the service that lives there."""
    announce(tmp_path)
    environ = {"GPUFAIR_URL": "https://far.example/", "GPUFAIR_TOKEN": "far", "GPUFAIR_STATE_DIR": str(tmp_path)}
    assert discover("http://here:1", "mine", environ=environ) == Endpoint("http://here:1", "mine")
    assert discover(environ=environ) == Endpoint("https://far.example", "far")
    near = Endpoint("http://127.0.0.1:9", "t", folder=tmp_path, pid=os.getpid())
    assert discover(folder=tmp_path, environ=environ) == near
    del environ["GPUFAIR_URL"]
    assert discover(environ=environ) == near


def test_the_token_comes_from_a_file_of_ours(tmp_path: Path) -> None:
    """A token that others can read is no secret: refused with the command that mends it."""
    file = tmp_path / "token"
    file.write_text("sesame\n")
    file.chmod(0o600)
    environ = {"GPUFAIR_URL": "http://far:1", "GPUFAIR_TOKEN_FILE": str(file)}
    assert discover(environ=environ).token == "sesame"
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        with pytest.raises(Unavailable, match="belongs to user id 12345"):
            discover(environ=environ)
        os.chown(file, 0, -1)
    file.chmod(0o666)
    with pytest.raises(Unavailable, match="chmod 600"):
        discover(environ=environ)
    file.unlink()
    with pytest.raises(Unavailable, match=r"GPUFAIR_TOKEN_FILE.*cannot be read"):
        discover(environ=environ)


def test_the_token_of_a_hubs_server_is_used_when_told_so() -> None:
    """Not by itself: a Hub's token must not be sent to whatever service somebody named."""
    environ = {"GPUFAIR_URL": "http://far:1", "JUPYTERHUB_API_TOKEN": "hubs"}
    assert discover(environ=environ).token == ""
    environ["GPUFAIR_TOKEN_FROM"] = "jupyterhub"
    assert discover(environ=environ).token == "hubs"
    assert discover(environ=environ | {"GPUFAIR_TOKEN": "mine"}).token == "mine"
    with pytest.raises(Unavailable, match="JUPYTERHUB_API_TOKEN is not set"):
        discover(environ=environ | {"JUPYTERHUB_API_TOKEN": ""})
    with pytest.raises(Unavailable, match="no place of tokens"):
        discover(environ=environ | {"GPUFAIR_TOKEN_FROM": "elsewhere"})


def test_a_token_never_shows() -> None:
    """An endpoint gets into logs; its token must not."""
    assert "sesame" not in repr(Endpoint("http://far:1", "sesame"))


@pytest.mark.parametrize(
    "url", ["far:1", "ftp://far", "http://", "http://[::1", "http://u:p@far:1", "http://far:99999", "http://far:0"]
)
def test_a_wrong_address_is_refused(url: str) -> None:
    """Before anything is sent, and with the form that it should have."""
    with pytest.raises(Unavailable, match=r"write it like|put the token into"):
        discover(environ={"GPUFAIR_URL": url})


def test_no_service_says_how_to_start_one(tmp_path: Path) -> None:
    """The next step is in the text."""
    with pytest.raises(Unavailable, match=r"none is running .*gpufair serve"):
        discover(environ={"GPUFAIR_STATE_DIR": str(tmp_path)})


def test_a_dead_service_is_not_used(tmp_path: Path) -> None:
    """After a crash the file stays."""
    process = subprocess.Popen(["true"])
    process.wait()
    announce(tmp_path, pid=process.pid)
    with pytest.raises(Unavailable, match="no longer alive"):
        from_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"url": 1}', '{"url": "http://a:1"}'])
def test_a_broken_file_is_no_traceback(tmp_path: Path, text: str) -> None:
    """A file cut off by a full disk, say."""
    path = announce(tmp_path)
    path.write_text(text)
    with pytest.raises(Unavailable, match="remove it"):
        from_folder(tmp_path)


def test_health(fake: FakeService) -> None:
    """A process that lives but does not answer well is no service."""
    health(fake.endpoint)
    fake.routes["GET /healthz"] = Reply(500)
    with pytest.raises(Unavailable, match="HTTP 500"):
        health(fake.endpoint)
    with pytest.raises(Unavailable, match="no answer"):
        health(Endpoint("http://127.0.0.1:9"))


def test_loopback() -> None:
    """Decides whether a proxy may stand in between."""
    assert [
        Endpoint(url).loopback for url in ("http://127.0.0.9:1", "http://localhost:1", "http://[::1]:1", "http://far:1")
    ] == [
        True,
        True,
        True,
        False,
    ]


def test_state_dir_follows_the_xdg_rules(tmp_path: Path) -> None:
    """Everybody must look in the same place; relative XDG paths are to be ignored."""
    assert state_dir(tmp_path, {"GPUFAIR_STATE_DIR": "/x"}) == tmp_path
    assert state_dir(None, {"GPUFAIR_STATE_DIR": "/x", "XDG_STATE_HOME": "/y"}) == Path("/x")
    assert state_dir(None, {"XDG_STATE_HOME": "/y"}) == Path("/y/gpufair")
    assert state_dir(None, {"XDG_STATE_HOME": "y"}) == Path.home() / ".local/state/gpufair"


def test_private_dir_closes_an_open_folder(tmp_path: Path) -> None:
    """Tokens will lie there."""
    folder = tmp_path / "a" / "b"
    assert private_dir(folder).stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert private_dir(folder).stat().st_mode & 0o777 == 0o700
