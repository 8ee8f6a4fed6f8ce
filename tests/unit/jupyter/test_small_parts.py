"""Launch descriptions, kernelspecs, texts and the JSON of a session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_events import EventLogger

from gpufair.client import Workload
from gpufair.client.types import CheckpointView, LeaseView, Profile
from jupyter_gpufair import messages
from jupyter_gpufair.io_thread import call_on_io, io_thread
from jupyter_gpufair.launch import hooks_of, kernel_launch, place_of, saves_itself
from jupyter_gpufair.profiles import own_folder, write_kernelspecs
from jupyter_gpufair.session import Session
from jupyter_gpufair.sessions import Sessions
from jupyter_gpufair.view import SESSION_EVENT, SESSION_SCHEMA, session_view

ENV = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "AWS_SECRET_ACCESS_KEY": "s",
    "JUPYTER_TOKEN": "t",
    "DATA": "/data",
    "JPY_SESSION_NAME": "/home/ada/work/a/b.ipynb",
}


def test_a_launch_holds_no_secret() -> None:
    """It is journalled. What is left out is named, never its value."""
    argv = ["python", "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}", "{resource_dir}/x"]
    spec_env = {
        "FOLDER": "${DATA}/in",
        "HF_TOKEN": "abc",
        "KEYED": "$AWS_SECRET_ACCESS_KEY",
        "BRACED": "${JUPYTER_TOKEN}",
    }
    launch, left_out = kernel_launch(argv, spec_env, cwd="/w", kernel_name="gpufair-x", env=ENV, resource_dir="/spec")
    assert left_out == ["HF_TOKEN", "KEYED", "BRACED"]
    assert launch["argv"] == [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}", "/spec/x"]
    assert launch["env"] == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "FOLDER": "/data/in",
        "JPY_SESSION_NAME": ENV["JPY_SESSION_NAME"],
    }
    assert (launch["type"], launch["cwd"], launch["notebook"]) == ("kernel", "/w", "/home/ada/work/a/b.ipynb")
    assert not {"abc", "s", "t"} & set(json.dumps(launch).replace('"', " ").split())


def test_a_far_node_gets_no_paths_of_this_machine() -> None:
    launch, _ = kernel_launch(["python"], {}, cwd="/w", kernel_name="k", env=ENV, local=False)
    assert launch["argv"] == ["python"]
    assert launch["env"] == {"JPY_SESSION_NAME": ENV["JPY_SESSION_NAME"]}


def test_only_our_kernel_saves_itself_unless_a_kernelspec_says_so():
    """What a session loses at a preemption depends on it, so R must not pass for what can be resumed."""
    ours = ["python", "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
    r = ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"]
    assert saves_itself(ours, {})
    assert not saves_itself(r, {"gpufair": {"on_preempt": "save.image()"}})
    assert saves_itself(r, {"gpufair": {"resumable": True}})
    assert not saves_itself(ours, {"gpufair": {"resumable": False}})


def test_hooks_come_from_the_kernelspec():
    metadata = {"gpufair": {"on_preempt": "save.image()", "on_resume": ["Rscript", "back.R"], "gpus": 1}}
    assert hooks_of(metadata) == {"on_preempt": "save.image()", "on_resume": ["Rscript", "back.R"]}
    assert hooks_of({}) == hooks_of({"gpufair": "nonsense"}) == {}


@pytest.mark.parametrize(
    ("notebook", "place"),
    [
        ("/home/ada/work/a/b.ipynb", ("a/b.ipynb", "b.ipynb", "notebook")),
        ("/home/ada/work/console-1", ("console-1", "console-1", "console")),
        ("/home/ada/elsewhere/b.ipynb", None),
        ("/home/ada/work", None),
        ("", None),
    ],
)
def test_where_a_notebook_belongs(notebook: str, place: tuple[str, str, str] | None) -> None:
    """Two servers with different roots share a service."""
    assert place_of(notebook, "/home/ada/work") == place


def test_kernelspecs_follow_the_profiles(tmp_path: Path) -> None:
    """Jupyter itself must find them; those of dropped profiles go."""
    folder = own_folder(tmp_path)
    names = write_kernelspecs([Profile("Big", gpus=4, nodes=2), Profile("cpu"), Profile("no/good")], folder)
    assert names == ["gpufair-big", "gpufair-cpu"]
    manager = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
    assert set(manager.find_kernel_specs()) == set(names)
    spec = manager.get_kernel_spec("gpufair-big")
    assert spec.display_name == "Big (8 GPUs)"
    assert spec.metadata["kernel_provisioner"] == {
        "provisioner_name": "gpufair-provisioner",
        "config": {"profile": "Big"},
    }
    assert write_kernelspecs([Profile("cpu")], folder) == ["gpufair-cpu"]
    assert set(manager.find_kernel_specs()) == {"gpufair-cpu"}


def test_folders_of_dead_servers_are_removed(tmp_path: Path) -> None:
    dead, mine = tmp_path / "gpufair-kernelspecs-999999999", own_folder(tmp_path)
    dead.mkdir()
    assert own_folder(tmp_path) == mine
    assert (mine.exists(), dead.exists()) == (True, False)
    assert mine.stat().st_mode & 0o777 == 0o700


SAVED = CheckpointView(
    "c", 1, at_s=1000.0, size_bytes=5, duration_s=0.5, lost=(("gen", "a generator"), ("f", "a file"))
)
PARKED = Workload("w", "parked", preemptions=1, reason="preempted so that ben can start", checkpoint=SAVED)


def test_a_cut_cell_is_told_the_truth() -> None:
    """What happened, why, what was kept, what to do."""
    ename, text = messages.cut_text(PARKED, 1001.0, None)
    assert ename == "SessionPreempted"
    assert "Preempted so that ben can start." in text
    assert f"Your variables were saved at {messages.clock(1000.0)}, except gen, f." in text
    assert text.endswith("Run the cell again: the session will be resumed.")

    assert "could not be saved: your variables as of" in messages.cut_text(PARKED, 1001.0, SAVED.id)[1]
    assert "Your variables could not be saved." in messages.cut_text(replace(PARKED, checkpoint=None), 1001.0, None)[1]
    assert messages.cut_text(replace(PARKED, preemptions=0), 1001.0, None)[0] == "SessionParked"
    waits = messages.cut_text(replace(PARKED, state="queued"), 1001.0, None)[1]
    assert waits.endswith("it waits until the session is back.")

    died = replace(PARKED, state="running", kernel_died=True)
    ename, text = messages.cut_text(died, 1001.0, None)
    assert ename == "KernelDied"
    assert "can be restored" in text
    text = messages.cut_text(replace(died, remark="over its memory limit: it used 5 GiB"), 1001.0, None)[1]
    assert "while this cell ran. It was over its memory limit: it used 5 GiB. Its variables are gone." in text
    assert messages.cut_text(replace(died, kernel_died=False), 1001.0, None)[1].startswith("The kernel was restarted")
    assert messages.cut_text(replace(PARKED, state="ended"), 1.0, None)[0] == "SessionEnded"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    """Sessions of a shared service that nobody answers for, so that none is started."""
    monkeypatch.setenv("GPUFAIR_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("GPUFAIR_TOKEN", "none")
    found = Sessions(io_thread().loop)
    yield found
    call_on_io(found.close(), 10)


def test_the_view_is_what_the_schema_promises(known: Sessions) -> None:
    """In every state: an event that its own schema refuses is an error in the server's log, and no news."""

    async def make() -> Session:
        return await known.open("k-1")

    async def forget(session: Session) -> None:
        await known.forget(session)

    logger = EventLogger()
    logger.register_event_schema(SESSION_SCHEMA)
    session = call_on_io(make(), 10)
    try:
        views = [session_view(session)]
        for state in ("queued", "starting", "restoring", "running", "checkpointing", "stopping", "parked", "ended"):
            session.workload = replace(
                PARKED, state=state, leases=(LeaseView("n", 1),), devices=(("n", "d"),), gpu_type="H200", position=1
            )
            views.append(session_view(session, 3))
        for view in views:
            logger.schemas.validate_event(SESSION_EVENT, view)
        assert views[-1]["lost"] == []
        session.workload = replace(
            PARKED, state="queued", reason="preempted", waits_for="preempted; 0 of 1 GPU is free"
        )
        assert session_view(session)["reason"] == "preempted; 0 of 1 GPU is free"
        session.workload = replace(PARKED, after=("3f2a81c0-0000",))
        assert session_view(session)["withheld"] == "waiting for 3f2a81c0 to end"
        session.workload = replace(PARKED, attempt=1, retries=3, retry_at_s=5.0)
        assert session_view(session)["withheld"] == "failed, attempt 2 of 4 follows"
        logger.schemas.validate_event(SESSION_EVENT, session_view(session))
        assert {view["withheld"] for view in views} == {""}
        assert (views[-1]["node"], views[-1]["device_ids"], views[-1]["held_cells"]) == ("n", ["d"], 3)
    finally:
        call_on_io(forget(session), 10)


def test_the_info_of_a_waiting_kernel_is_python() -> None:
    info = messages.kernel_info()
    assert info["language_info"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert info["supported_features"] == []
    assert os.sep not in info["banner"]
