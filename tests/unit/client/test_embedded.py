"""Whoever needs a service gets one, the same one, and a reason if there can be none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpufair.client import Endpoint, Unavailable, ensure_service, ensure_service_async
from gpufair.client.embedded import StartFailed
from tests.unit.client.fake_service import FakeService

COMMAND = (sys.executable, str(Path(__file__).with_name("serve_stand_in.py")))


def starts(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "starts").read_text().splitlines()]


def environ(behaviour: str = "serve", **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "STAND_IN": behaviour, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder; what was started in it is gone afterwards."""
    place = tmp_path / "state"
    yield place
    if (place / "starts").exists():
        for start in starts(place):
            with suppress(ProcessLookupError):
                os.killpg(start["pid"], signal.SIGKILL)


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def ensure(folder: Path, **more: Any) -> Endpoint:
    return ensure_service(state_dir=folder, command=COMMAND, **{"environ": environ(), **more})


def test_one_is_started_and_then_found(folder: Path) -> None:
    """Detached, owner-only, with its output in the log."""
    first = ensure(folder, config="conf.toml")
    assert ensure(folder) == first
    (start,) = starts(folder)
    assert start["argv"] == [
        "serve",
        "--embedded",
        "--state-dir",
        str(folder),
        "--config",
        str(Path.cwd() / "conf.toml"),
    ]
    assert first.pid == start["pid"] == start["sid"]
    assert (folder / "service.log").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "GET /healthz" in (folder / "service.log").read_text()


def test_no_credential_of_ours_is_inherited(folder: Path) -> None:
    """What a service has in its environment, a user's kernel may get to see."""
    ensure(
        folder, environ=environ(GPUFAIR_URL="http://far", GPUFAIR_TOKEN="sesame", JUPYTER_TOKEN="sesame", MINE="kept")
    )
    (start,) = starts(folder)
    assert "sesame" not in json.dumps(start)
    assert start["env"]["MINE"] == "kept"


def test_it_outlives_its_starter(folder: Path) -> None:
    """kill -9 of a Jupyter server must not take the sessions with it."""
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom gpufair.client import ensure_service\n"
        "ensure_service(state_dir=Path(sys.argv[1]), command=sys.argv[2:])\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder), *COMMAND], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert ensure(folder).pid == starts(folder)[0]["pid"]


def test_many_at_once_get_one(folder: Path) -> None:
    """Two Jupyter servers started together share one service: threads here, processes below."""
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: ensure(folder), range(6)))
    assert len(set(found)) == 1
    assert len(starts(folder)) == 1


def test_many_processes_at_once_get_one(folder: Path) -> None:
    """The lock is between processes."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom gpufair.client import ensure_service\n"
        "print(ensure_service(state_dir=Path(sys.argv[1]), command=sys.argv[2:], wait_s=40).pid)\n"
    )
    asking = [
        subprocess.Popen([sys.executable, "-c", program, str(folder), *COMMAND], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = [process.communicate(timeout=60)[0] for process in asking]
    (start,) = starts(folder)
    assert answers == [f"{start['pid']}\n"] * 4


def test_a_dead_one_is_replaced(folder: Path) -> None:
    """Its service.json is still there."""
    first = ensure(folder)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    assert gone(first.pid), "a killed child was not reaped"
    second = ensure(folder)
    assert second.pid not in (None, first.pid)


def test_one_that_fails_is_quoted(folder: Path) -> None:
    """A user sees the reason without looking for a file."""
    with pytest.raises(StartFailed, match="exit code 7") as caught:
        ensure(folder, environ=environ("fail"))
    assert "port 80 is taken; choose another" in str(caught.value)
    assert str(folder / "service.log") in str(caught.value)
    with pytest.raises(StartFailed) as again:
        ensure(folder, environ=environ("fail"))
    assert str(again.value).count("port 80 is taken") == 1, "an older start was quoted"


def test_one_that_hangs_is_given_up_and_ended(folder: Path) -> None:
    """The wait is bounded, and nothing half alive is left for the next start to trip over."""
    with pytest.raises(StartFailed, match=r"did not answer in time(.|\n)*still loading"):
        ensure(folder, environ=environ("hang"), wait_s=1.5)
    assert gone(starts(folder)[0]["pid"])


def test_a_configured_service_is_used_or_complained_about(folder: Path, fake: FakeService) -> None:
    """Falling back to a service of one's own would hide that the shared one is down."""
    shared = environ(GPUFAIR_URL=fake.url, GPUFAIR_TOKEN="t", GPUFAIR_STATE_DIR=str(folder))
    assert ensure_service(environ=shared, command=COMMAND) == Endpoint(fake.url, "t")
    with pytest.raises(Unavailable, match=r"127.0.0.1:9/healthz.*GPUFAIR_URL"):
        ensure_service(environ=shared | {"GPUFAIR_URL": "http://127.0.0.1:9"}, command=COMMAND)
    both = shared | {"GPUFAIR_URL": f"http://127.0.0.1:9,{fake.url}"}
    assert ensure_service(environ=both, command=COMMAND) == Endpoint(fake.url, "t", others=("http://127.0.0.1:9",))
    assert not (folder / "starts").exists()


def test_a_folder_that_cannot_be_is_no_traceback(tmp_path: Path) -> None:
    """A file in the way, say."""
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="cannot be used"):
        ensure(tmp_path / "file" / "state")


def test_the_loop_goes_on_while_one_starts(folder: Path) -> None:
    """A Jupyter server serves others meanwhile."""

    async def go() -> int:
        beats = 0
        start = asyncio.ensure_future(ensure_service_async(state_dir=folder, environ=environ(), command=COMMAND))
        while not start.done():
            await asyncio.sleep(0.01)
            beats += 1
        assert (await start).pid == starts(folder)[0]["pid"]
        return beats

    assert asyncio.run(go()) > 5


def test_after_a_crash_it_has_the_same_configuration(folder: Path, tmp_path: Path) -> None:
    """Whoever starts it again may know of none; who names one means it; what is gone or could be anybody's is not used."""
    config = tmp_path / "lab.toml"
    config.touch()
    folder.mkdir(mode=0o700)
    note = folder / "service.json"

    def argv(mode: int = 0o600, **more: Any) -> list[str]:
        note.write_text(json.dumps({"url": "http://127.0.0.1:1", "token": "t", "pid": 0, "config": str(config)}))
        note.chmod(mode)
        pid = ensure(folder, **more).pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        assert gone(pid)
        found: list[str] = starts(folder)[-1]["argv"]
        return found[found.index("--config") + 1 :] if "--config" in found else []

    assert argv() == [str(config)]
    assert argv(config=tmp_path / "mine.toml") == [str(tmp_path / "mine.toml")]
    assert argv(environ=environ(GPUFAIR_CONFIG="/x.toml")) == []  # the service looks there itself
    assert argv(mode=0o666) == []
    config.unlink()
    assert argv() == []
