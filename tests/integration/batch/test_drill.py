"""`gpufair drill`: what goes on where it was is told from what does not, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

STEPS = """
import json, os, sys, time, gpufair
done = json.load(open("done.json")) if os.path.exists("done.json") and "--forget" not in sys.argv else 0
def save():
    json.dump(done, open("new.json", "w"))
    os.replace("new.json", "done.json")  # it may be killed while it writes
gpufair.on_preempt(save)
while done < 45:  # so long that what a start takes on a busy machine is little beside it
    time.sleep(0.1)
    done += 1
    save()
    gpufair.safe_point()
if os.path.exists("done.json"):
    os.remove("done.json")
print("total", done)
"""


def drill(folder: Path, *args: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what it found, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "gpufair.cli", "drill", "--json", *args],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_a_notebook_and_what_of_it_does_not_come_back(tmp_path: Path) -> None:
    made: Any = nbformat.v4.new_notebook()
    sources = ("import time\nx = [1]", "time.sleep(0.8); x.append(2); print(x)", "lost = iter(open(__import__('os').devnull, 'rb').read, 1)",
               "time.sleep(0.8); print(x)", "time.sleep(0.8); print(type(lost).__name__)")  # fmt: skip
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(made, tmp_path / "run.ipynb")
    before = sorted(tmp_path.iterdir())
    code, found, _ = drill(tmp_path, "run.ipynb", "--cells", "2", "--cuts", "1")
    assert (code, found["resumes"], [cell["same"] for cell in found["cells"]]) == (0, True, [True, True])
    assert [cut["how"] for cut in found["cuts"]] == ["notice"]
    code, found, said = drill(tmp_path, "run.ipynb")
    assert (code, found["resumes"]) == (1, False), said
    assert [cell["same"] for cell in found["cells"]] == [True] * 4 + [False]
    assert "lost" in found["unsaved"]
    assert "NameError" in found["cells"][-1]["cut"]
    assert sorted(tmp_path.iterdir()) == before, "it leaves nothing behind"


def test_a_program_that_goes_on_and_one_that_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    code, found, said = drill(tmp_path, "--", sys.executable, "steps.py")
    assert (code, found["resumes"], found["undisturbed"]) == (0, True, "total 45"), (found, said)
    assert [cut["how"] for cut in found["cuts"]] == ["notice", "kill"]
    assert found["too_slow"] == 0
    code, found, _ = drill(tmp_path, "--", sys.executable, "steps.py", "--forget")
    assert (code, found["resumes"], found["began_anew"]) == (1, False, True)


def test_what_cannot_be_rehearsed_says_so(tmp_path: Path) -> None:
    for args, text in (
        (("--", "no-such-program"), "cannot be started"),
        (("--", sys.executable, "-c", "raise SystemExit('no data')"), "no data"),
        (("--limit", "1s", "--", "sleep", "60"), "did not end within 1 s"),
        (("--cells", "2", "--", "true"), "belong to a notebook"),
    ):
        code, found, said = drill(tmp_path, *args)
        assert code in {1, 2}
        assert not found
        assert text in said
        assert "Traceback" not in said
