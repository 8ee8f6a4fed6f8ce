"""Batch notebooks: cut short, failing, with parameters, large, of other kernels; by the runner alone and by papermill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from gpufair.client.notebooks import NotebookJob, prepare
from tests.cut_notebooks import Played, play
from tests.integration.service.rig import Rig, until

SPEC = {"name": "python3", "language": "python", "display_name": "Python 3"}


def notebook(*sources: str, tags: dict[int, list[str]] | None = None) -> bytes:
    """A notebook of these cells."""
    made: Any = nbformat.v4.new_notebook(metadata={"kernelspec": SPEC})
    made.cells = [
        nbformat.v4.new_code_cell(source, metadata={"tags": (tags or {}).get(number, [])})
        for number, source in enumerate(sources)
    ]
    return bytes(nbformat.writes(made), "utf-8")


def finish(root: Path, source: bytes, code: int = 0) -> Played:
    """Run it to its end."""
    played = Played(root, source)
    assert played.start().wait(120) == code, played.log()
    return played


def test_random_cuts_change_nothing(tmp_path: Path) -> None:
    """The short form; ``python -m tests.cut_notebooks`` plays 200."""
    found = play(tmp_path, cuts=5, seed=20261130)
    assert found["starts"] > 5


TRAINING = (
    "import numpy, random\nfrom sklearn.datasets import load_digits\nfrom sklearn.linear_model import SGDClassifier\n"
    "from sklearn.model_selection import train_test_split\nfrom sklearn.preprocessing import StandardScaler\n"
    "numpy.random.seed(lot)\nimages, digits = load_digits(return_X_y=True)\n"
    "train, test, train_to, test_to = train_test_split(StandardScaler().fit_transform(images), digits)",
    "model = SGDClassifier(loss='log_loss', random_state=numpy.random.mtrand._rand)\nscores = []",
    *[
        "order = numpy.random.permutation(len(train))\n"
        "for part in numpy.array_split(order, 20):\n    model.partial_fit(train[part], train_to[part], classes=range(10))\n"
        "scores.append(model.score(test, test_to)); print(scores, model.coef_.sum())"
    ]
    * 5,
    "assert scores[-1] > 0.9\nimport matplotlib.pyplot as plt\nplt.plot(scores); plt.show()",
)


def test_training_on_real_data_is_cut_and_ends_the_same(tmp_path: Path) -> None:
    """Handwritten digits: data drawn, model, and its order of samples go on where they were, to the last bit."""
    pytest.importorskip("sklearn")
    source = notebook("lot = 0", *TRAINING)
    calm, cut = finish(tmp_path / "calm", source), Played(tmp_path / "cut", source)
    for grace_s in (3.0, 0.0, 3.0):
        process = cut.start()
        cut.await_cell(process)
        cut.cut(process, grace_s)
    assert cut.start().wait(120) == 0, cut.log()
    assert cut.texts() == calm.texts()
    assert "image/png" in cut.read().cells[-1].outputs[-1].data
    assert len(cut.read().metadata.gpufair.starts) > 1


def test_a_failing_cell_ends_the_run_and_shows_why(tmp_path: Path) -> None:
    played = finish(tmp_path / "run", notebook("lot = 1", "print('before')", "1 / 0", "print('never')"), code=1)
    read = played.read()
    nbformat.validate(read)
    assert [[one.output_type for one in cell.outputs] for cell in read.cells[2:]] == [["stream"], ["error"], []]
    assert read.metadata.gpufair.state == "failed"
    assert "ZeroDivisionError: division by zero" in played.log()


def test_rich_and_large_outputs_come_whole(tmp_path: Path) -> None:
    """50 MB of text, HTML, a picture, a widget."""
    pytest.importorskip("ipywidgets")
    large = "print('x' * 50_000_000)"
    rich = "from IPython.display import HTML, display\ndisplay(HTML('<b>bold</b>'))\nimport ipywidgets\nipywidgets.IntSlider(value=7)"
    played = finish(tmp_path / "run", notebook(large, rich, "print('after')"))
    read = played.read()
    nbformat.validate(read)
    assert len(played.texts()[1]) == 50_000_001
    assert sorted(read.cells[2].outputs[0].data) == ["text/html", "text/plain"]
    (state,) = read.metadata.widgets.values()
    assert any(model["state"].get("value") == 7 for model in state["state"].values())


def test_a_cell_marked_repeatable_has_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    source = notebook("a = 1", "b = 2", "c = 3", tags={1: ["gpufair-repeatable"]})
    assert finish(tmp_path / "run", source).read().metadata.gpufair.checkpoints == 3  # the cell of the parameters too


def test_nothing_of_a_finished_run_is_left_but_what_it_says(tmp_path: Path) -> None:
    """No checkpoints, with variables in them; while it runs they are its owner's alone."""
    played = Played(tmp_path / "run", notebook("secret = 'x'"))
    assert played.folder.stat().st_mode & 0o077 == 0
    assert played.start().wait(120) == 0, played.log()
    assert [path.name for path in played.folder.iterdir()] == ["done"]


@pytest.mark.parametrize(("source", "code"), [("print('x')", 0), ("1 / 0", 1)])
def test_a_run_that_is_over_is_not_begun_again(tmp_path: Path, source: str, code: int) -> None:
    """It may be told to leave in its last moment: then it is started once more, and says how it ended."""
    played = finish(tmp_path / "run", notebook(source), code)
    before = played.output.read_bytes()
    assert played.start().wait(60) == code, played.log()
    assert played.output.read_bytes() == before


# -- with the real service ------------------------------------------------------------------------------------------


def test_a_failed_cell_is_tried_again_from_where_it_began(tmp_path: Path) -> None:
    """What is finished does not run again, and after the last attempt nothing is left over."""
    cell = "import os\nprint('before', lot)\nlot += 1\nassert os.environ['GPUFAIR_ATTEMPT'] == '2'"
    played = Played(tmp_path / "run", notebook("lot = 1", "print('once', lot)", cell, tags={0: ["parameters"]}))
    assert played.start(GPUFAIR_ATTEMPT="1", GPUFAIR_ATTEMPTS="3").wait(60) == 1, played.log()
    assert played.read().metadata.gpufair.state == "failed"
    assert played.start(GPUFAIR_ATTEMPT="2", GPUFAIR_ATTEMPTS="3").wait(60) == 0, played.log()
    facts = played.read().metadata.gpufair
    assert played.texts()[2:] == ["once 7\n", "before 7\n"]
    assert (facts.state, [one.attempt for one in facts.starts], facts.ran_again) == ("completed", [1, 2], [3])
    assert [path.name for path in played.folder.iterdir()] == ["done"]


def test_a_run_whose_time_is_over_keeps_what_it_has(tmp_path: Path) -> None:
    """And does not call it a preemption, after which it would go on."""
    played = Played(tmp_path / "run", notebook("lot = 0", "import time; time.sleep(2); print('once')", "print('never')", tags={0: ["parameters"]}))
    process = played.start()
    until("the slow cell", lambda: "cell 3 of 4" in played.log())
    played.cut(process, 60.0, outcome="timed out")
    facts = played.read().metadata.gpufair
    assert (process.returncode, facts.state, facts.preemptions) == (1, "timed out", 0)
    assert played.texts()[2:] == ["once\n", ""]
    assert [path.name for path in played.folder.iterdir()] == ["done"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    rig.start()
    yield rig
    rig.clean()


def call(rig: Rig, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command of a user whose service this is."""
    env = {**os.environ, "GPUFAIR_STATE_DIR": str(rig.state)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=rig.folder, capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.returncode == code, done.stdout + done.stderr + rig.log()
    return done


def test_submit_a_notebook_and_be_preempted(rig: Rig) -> None:
    """Its finished cells keep their outputs; the record says what happened."""
    slow = "import time\nfor step in range(8):\n    print(name, step, flush=True)\n    time.sleep(0.2)"
    source = notebook("name = 'nobody'", "print('once')", slow, "print('end', lr + 1)", tags={0: ["parameters"]})
    (rig.folder / "in.ipynb").write_bytes(source)
    asked = ("--min-runtime", "1s", "--allocation", "a", "--json")
    words = ("in.ipynb", "out.ipynb", "-p", "name", "run", "-p", "lr", "0.5")
    run = json.loads(call(rig, "gpufair.cli", "submit", *words, *asked).stdout)
    log = rig.folder / "state" / "records" / run["id"]
    until("the slow cell", lambda: any("cell 4 of 5" in path.read_text() for path in log.glob("log-*")))
    rig.submit("first", "sleep 0.2", allocation="b", min_runtime_s=1)
    rig.await_state("first", "ended")
    assert rig.await_state(run["id"], "ended")["outcome"] == "completed"
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    texts = ["".join(one.get("text", "") for one in cell.outputs) for cell in read.cells]
    assert texts[2:] == ["once\n", "".join(f"run {step}\n" for step in range(8)), "end 1.5\n"]
    facts = read.metadata.gpufair
    assert (facts.workload, facts.state, len(facts.starts)) == (run["id"], "completed", 2)
    assert facts.preemptions == 1, (facts.starts, [p.read_text() for p in log.glob("log-*")])
    assert facts.gpu_hours > 0
    assert facts.allocation == "a"
    assert [one.waited_s > 0 for one in facts.starts] == [True, True]
    assert facts.ran_again in ([], [3])  # the grace may have been enough for the slow cell


def test_papermill_with_our_engine(rig: Rig) -> None:
    """As with its own: outputs, progress, parameters, and the error of a cell as its own error."""
    (rig.folder / "in.ipynb").write_bytes(notebook("lr = 1", "print(lr)", tags={0: ["parameters"]}))
    call(rig, "papermill", "--engine", "gpufair", "in.ipynb", "out.ipynb", "-p", "lr", "0.1", "--no-progress-bar")
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    assert read.cells[2].outputs[0].text == "0.1\n"
    assert read.metadata.papermill.parameters == {"lr": 0.1}
    assert [cell.metadata.papermill.status for cell in read.cells] == ["completed"] * 3
    assert read.metadata.gpufair.state == "completed"
    assert sorted(path.name for path in rig.folder.glob("*.ipynb")) == ["in.ipynb", "out.ipynb"]
    assert not list((rig.folder / ".gpufair").iterdir())

    (rig.folder / "bad.ipynb").write_bytes(notebook("x = {}", "x['no']"))
    failed = call(rig, "papermill", "--engine", "gpufair", "bad.ipynb", "out2.ipynb", "--no-progress-bar", code=1)
    assert "KeyError: 'no'" in failed.stderr


def test_what_is_no_notebook_is_refused_before_it_is_submitted(rig: Rig) -> None:
    (rig.folder / "in.ipynb").write_text("{}")
    assert "it has no list of cells" in call(rig, "gpufair.cli", "submit", "in.ipynb", code=1).stderr
    (rig.folder / "in.ipynb").write_bytes(notebook("1"))
    assert "would replace in.ipynb" in call(rig, "gpufair.cli", "submit", "in.ipynb", "in.ipynb", code=2).stderr
    assert "write it as NAME VALUE" in call(rig, "gpufair.cli", "submit", "in.ipynb", "-p", "a-b", "1", code=2).stderr
    assert rig.ask("GET", "/workloads")["workloads"] == []
    assert not (rig.folder / ".gpufair").exists()


def test_a_job_that_is_gone_says_so(tmp_path: Path) -> None:
    folder = prepare(notebook("1"), NotebookJob(str(tmp_path / "out.ipynb")), "job")
    (folder / "input.ipynb").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpufair.batch", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "holds no job" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
