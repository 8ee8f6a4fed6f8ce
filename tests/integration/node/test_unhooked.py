"""Kernels that know nothing of gpufair run under the same contract, and what becomes of their variables is said."""

import sys
import time
from pathlib import Path

import pytest

from tests.integration.node.rig import until

TINY = Path(__file__).with_name("tiny_kernel.py")
KERNELS = {
    "another language": [sys.executable, str(TINY), "-f", "{connection_file}"],
    "a plain ipykernel": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
}
GRACE_S = 3.0


def _start(rig, kernel="another language", incarnation=1, **launch):
    more = {"restore": launch.pop("restore"), "next_sequence": 2} if "restore" in launch else {}
    rig.start("w", incarnation=incarnation, launch={"argv": KERNELS[kernel], **launch}, **more)
    return rig.service.wait("w", "serving", incarnation=incarnation, timeout_s=30).body


def _cell(rig, connection, code):
    return rig.client(connection).execute_interactive(code, timeout=30, output_hook=lambda _: None)["content"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_busy_one_gets_the_grace_then_an_interrupt_and_its_loss_is_told(rig, kernel):
    connection = _start(rig, kernel)["connection"]
    tiny = kernel == "another language"
    rig.run(connection, "wait 60" if tiny else "import time; time.sleep(60)")
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [True], what="a cell runs")
    begun = time.monotonic()
    rig.preempt("w", in_s=GRACE_S)
    released = rig.service.wait("w", "released", timeout_s=20).body
    assert GRACE_S - 0.1 < time.monotonic() - begun < GRACE_S + 3
    assert released == {
        "busy": True,
        "unsaved": [["*", "this kernel cannot save its variables, so all are lost"]],
    }
    assert rig.service.of("w", "checkpoint_failed")
    assert not rig.service.of("w", "checkpointed")


def test_a_cell_that_the_kernelspec_names_saves_what_it_wants_and_another_brings_it_back(rig, tmp_path):
    hooks = {"on_preempt": f"save {tmp_path / 'saved'}", "on_resume": f"load {tmp_path / 'saved'}"}
    connection = _start(rig, **hooks)["connection"]
    assert _cell(rig, connection, "set x 41")["status"] == "ok"
    begun = time.monotonic()
    rig.preempt("w", in_s=30)
    released = rig.service.wait("w", "released", timeout_s=20).body
    assert time.monotonic() - begun < 10, "what was kept need not wait for the end of the grace"
    assert released["unsaved"] == [
        ["*", "this kernel cannot save its variables, so all are lost; what its on_preempt hook saved is kept"]
    ]
    again = _start(rig, incarnation=2, **hooks)
    assert again["lost"] == []
    assert rig.ask(again["connection"], "x") == "41"


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        ("fail", "its on_preempt hook failed: ValueError: as told"),
        ([sys.executable, "-c", "print('no room'); raise SystemExit(3)"], "ended with code 3: no room"),
        (["/no/such/program"], "/no/such/program cannot be started"),
    ],
)
def test_a_hook_that_fails_frees_nothing_early_and_is_told(rig, hook, why):
    _start(rig, on_preempt=hook)
    begun = time.monotonic()
    rig.preempt("w", in_s=GRACE_S)
    released = rig.service.wait("w", "released", timeout_s=20).body
    assert time.monotonic() - begun > GRACE_S - 0.1
    assert why in released["unsaved"][0][1]


# ------------------------------------------------------------------------------------------------ process images


@pytest.fixture
def imaging(make_rig, tmp_path, monkeypatch):
    """A node whose operator installed a plugin for process images and switched it on."""
    facts = tmp_path / "site" / "fake_images-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-images\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[gpufair.process_image]\nfake = tests.integration.node.fake_images:FakeImages\n"
    )
    root = str(Path(__file__).parents[3])
    path = [str(tmp_path / "site"), root, *(entry for entry in sys.path if entry)]
    monkeypatch.setenv("PYTHONPATH", ":".join(path))
    monkeypatch.setenv("GPUFAIR_PROCESS_IMAGE", "fake")
    monkeypatch.setenv("TINY_FOLDER", str(tmp_path / "tiny-variables"))
    return make_rig


def test_an_image_of_the_process_brings_everything_back(imaging):
    rig = imaging()
    connection = _start(rig)["connection"]
    assert _cell(rig, connection, "set x 42")["status"] == "ok"
    begun = time.monotonic()
    rig.preempt("w", in_s=30)
    assert rig.service.wait("w", "released", timeout_s=20).body == {"busy": False}
    assert time.monotonic() - begun < 10
    saved = rig.service.of("w", "checkpointed")[-1].body
    assert saved["size_bytes"] > 0
    rig.hang_up()
    again = _start(rig, incarnation=2, restore=saved["id"])
    assert (again["lost"], again["connection"]) == ([], connection), "it listens where it listened"
    assert rig.ask(again["connection"], "x") == "42"
    rig.service.command("stop", "w", 2)
    rig.service.wait("w", "released", incarnation=2)


def test_an_image_that_was_changed_or_has_no_plugin_is_not_used(imaging, monkeypatch):
    rig = imaging()
    _start(rig)
    rig.preempt("w", in_s=30)
    rig.service.wait("w", "released", timeout_s=20)
    saved = rig.service.of("w", "checkpointed")[-1].body["id"]
    facts = rig.root / "checkpoints" / "w.images" / saved / "image.json"
    whole = facts.read_text()
    facts.write_text(whole.replace('"plugin": "fake"', '"plugin": "evil"'))
    rig.start("w", incarnation=2, launch={"argv": KERNELS["another language"]}, restore=saved)
    failed = rig.service.wait("w", "start_failed", incarnation=2).body["reason"]
    assert "was not written by a session of this user" in failed
    facts.write_text(whole)
    rig.kill_agent()
    monkeypatch.delenv("GPUFAIR_PROCESS_IMAGE")
    rig.start_agent()
    rig.service.wait_hello(2)
    fresh = _start(rig, incarnation=3, restore=saved)
    assert "GPUFAIR_PROCESS_IMAGE is not set on this node" in fresh["lost"][0][1]
    assert rig.ask(fresh["connection"], "x") == "unknown"
    assert facts.exists()


def test_a_plugin_that_cannot_work_here_says_so_and_the_end_is_as_without(imaging, monkeypatch):
    monkeypatch.setenv("FAKE_IMAGES_PROBLEM", "the kernel is too new")
    rig = imaging()
    _start(rig)
    rig.preempt("w", in_s=GRACE_S)
    told = rig.service.wait("w", "released", timeout_s=20).body["unsaved"]
    assert (
        "all are lost; a process image could not be made" in told[0][1]
        or "cannot make process images here" in told[0][1]
    )
    assert not list((rig.root / "checkpoints").glob("*.images/*"))
