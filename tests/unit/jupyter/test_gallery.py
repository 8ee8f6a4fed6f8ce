"""A gallery tells what the notebooks say, holds no more than it may, and lets nothing of theirs out of its frame."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gpufair.client.notebooks import MAX_NOTEBOOK_BYTES
from jupyter_gpufair.batch import gallery, gallery_runs
from jupyter_gpufair.batch.gallery import NoGallery, make
from tests.output_notebooks import PNG, code, failed, shown, text, write

MB = 1_000_000
SCRIPT = "<script>document.title='owned'</script>"
EVIL = f"</iframe>{SCRIPT}"


def reasons(told: dict[str, list[dict[str, str]]], what: str) -> dict[str, str]:
    return {one["path"]: one["reason"] for one in told[what]}


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    """The facts are those that the runner wrote."""
    cells = [code("a = 1"), code("b = 2", text("hello\n")), failed("1 / 0", "ZeroDivisionError", "division by zero")]
    cells[1].metadata["gpufair"]["runs"] = 2
    written = write(tmp_path / "sub" / "out.ipynb", *cells, parameters={"lr": 0.1, "name": "x"}, state="failed", before=("preempted",))
    (run,) = make(tmp_path, tmp_path / "g.html", MB)["runs"]
    facts = written.metadata.gpufair
    assert run == {
        "path": "sub/out.ipynb",
        "state": "failed",
        "workload": "a" * 32,
        "allocation": "vision",
        "parameters": {"lr": 0.1, "name": "x"},
        "started_s": facts.starts[0].at_s,
        "duration_s": sum(one.until_s - one.at_s for one in facts.starts),
        "gpu_hours": facts.gpu_hours,
        "preemptions": 1,
        "ran_again": [2],
        "failed_cell": 3,
        "error": "ZeroDivisionError: division by zero",
    }
    page = (tmp_path / "g.html").read_text()
    assert "3: ZeroDivisionError: division by zero" in page
    assert "hello" in page


def test_an_error_that_was_allowed_is_no_failure(tmp_path: Path) -> None:
    write(tmp_path / "out.ipynb", failed("1 / 0", "ZeroDivisionError", "as expected"), parameters={})
    (run,) = make(tmp_path, tmp_path / "g.html", MB)["runs"]
    assert (run["state"], run["failed_cell"], run["error"]) == ("completed", None, "")


def test_what_a_notebook_brings_stays_in_an_attribute(tmp_path: Path) -> None:
    """From names, parameters, errors and outputs nothing gets into the page as markup."""
    cells = [code("x", shown(text_html=EVIL + "'\"")), failed("y", EVIL, EVIL)]
    write(tmp_path / f"{EVIL.replace('/', '')}.ipynb", *cells, parameters={EVIL: EVIL}, state=EVIL)
    (tmp_path / "<script>.ipynb").write_text("{")
    make(tmp_path, tmp_path / "g.html", MB)
    page = (tmp_path / "g.html").read_text()
    before, _, rest = page.partition("data-cells='")
    attribute, _, after = rest.partition("'")
    assert SCRIPT in unescape(attribute)
    assert "<script" not in before
    assert after.count("<script") == 1  # the page's own
    assert "<iframe sandbox title=" in before
    assert "default-src 'none'" in before


def test_the_first_figure_is_there_once(tmp_path: Path) -> None:
    """As a thumbnail; the cells refer to it."""
    write(tmp_path / "out.ipynb", code("x", shown(image_png=PNG[:30] + "\n" + PNG[30:], text_plain="<Figure>")), parameters={})
    make(tmp_path, tmp_path / "g.html", MB)
    page = (tmp_path / "g.html").read_text()
    assert page.count(PNG) == 1
    assert f'src="data:image/png;base64,{PNG}"' in page


def test_damaged_and_foreign_notebooks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost nothing but their own rows."""
    write(tmp_path / "good.ipynb", code("x"), parameters={})
    (tmp_path / "cut.ipynb").write_text((tmp_path / "good.ipynb").read_text()[:-40])
    (tmp_path / "deep.ipynb").write_text("[" * 200_000)
    (tmp_path / "foreign.ipynb").write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    odd = {"cells": [], "metadata": {"gpufair": {"starts": "yes"}}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "odd.ipynb").write_text(json.dumps(odd))
    (tmp_path / "gone.ipynb").symlink_to(tmp_path / "nowhere")
    with (tmp_path / "huge.ipynb").open("wb") as file:
        file.truncate(MAX_NOTEBOOK_BYTES)
    for hidden in (".gpufair", ".ipynb_checkpoints"):
        write(tmp_path / hidden / "result.ipynb", code("x"), parameters={})
    told = make(tmp_path, tmp_path / "g.html", MB)
    assert [one["path"] for one in told["runs"]] == ["good.ipynb"]
    skipped = reasons(told, "skipped")
    assert set(skipped) == {f"{name}.ipynb" for name in ("cut", "deep", "foreign", "odd", "gone", "huge")}
    assert "no output of `gpufair submit`" in skipped["foreign.ipynb"]
    assert skipped["foreign.ipynb"] == skipped["odd.ipynb"]
    assert "may have 256 MiB" in skipped["huge.ipynb"]
    assert "cut.ipynb" in (tmp_path / "g.html").read_text()


def test_facts_of_other_types_are_not_there(tmp_path: Path) -> None:
    """A notebook can be written by anybody; the page has to be made all the same."""
    starts = [{"at_s": 10**400, "until_s": "x", "state": []}, {"at_s": 5, "until_s": 2}, 7]
    facts = {"starts": starts, "state": {}, "gpu_hours": True, "parameters": {"a": [1], "b": "\ud800", "c": float("nan"), "d": None}}
    cell: dict[str, Any] = {"cell_type": "code", "source": "\ud800", "metadata": {"gpufair": 3}, "outputs": [], "execution_count": None, "id": "a"}
    odd = {"cells": [cell], "metadata": {"gpufair": facts}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "odd.ipynb").write_text(json.dumps(odd))
    told = make(tmp_path, tmp_path / "g.html", MB)
    (run,) = told["runs"]
    assert (run["state"], run["started_s"], run["duration_s"], run["gpu_hours"], run["preemptions"]) == ("unknown", None, 0, 0.0, 0)
    assert run["parameters"] == {"a": "[1]", "b": " ", "c": "nan", "d": None}
    assert told["left_out"] == []


def test_the_page_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    """The largest outputs go first, and each run has an equal share."""
    small = [code("x", text("short\n"), shown(image_png=PNG))]
    for number in range(3):
        write(tmp_path / f"{number}.ipynb", *small, parameters={"n": number})
    write(tmp_path / "large.ipynb", code("y", text("z" * 3 * MB)), *small, parameters={"n": 3})
    write(tmp_path / "long.ipynb", *(code("x" * 3000) for _ in range(100)), parameters={"n": 4})
    write(tmp_path / "quotes.ipynb", code("x", text("'" * 80_000)), parameters={"n": 5})  # 5 times as long in the page
    told = make(tmp_path, tmp_path / "g.html", MB)
    assert reasons(told, "left_out") == {"large.ipynb": "1 of 3 outputs", "long.ipynb": "all of its 100 cells", "quotes.ipynb": "all of its 1 cell"}
    assert told["size_bytes"] == (tmp_path / "g.html").stat().st_size < MB
    page = (tmp_path / "g.html").read_text()
    assert "[3,000,000 bytes are left out here; open the notebook itself]" in page
    assert "zzzz" not in page
    assert page.count("short\n") == 4


def test_of_too_many_runs_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MAX_RUNS", 2)
    for number in range(3):
        write(tmp_path / f"{number}.ipynb", code("x"), parameters={})
    told = make(tmp_path, tmp_path / "g.html", MB)
    assert [one["path"] for one in told["runs"]] == ["2.ipynb", "1.ipynb"]
    assert reasons(told, "left_out") == {"0.ipynb": "only the newest 2 runs are shown"}


def test_a_notebook_that_changes_meanwhile_costs_only_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read once for the table; when its cells are to be rendered it is gone."""
    write(tmp_path / "out.ipynb", code("x"), parameters={})

    def vanishing(path: Path):
        notebook = gallery_runs.opened(path)
        path.unlink()
        return notebook

    read = iter([vanishing, gallery_runs.opened])
    monkeypatch.setattr(gallery, "opened", lambda path: next(read)(path))  # noqa: PLW0108  # another one at each call
    told = make(tmp_path, tmp_path / "g.html", MB)
    assert "cannot be shown" in reasons(told, "left_out")["out.ipynb"]
    assert len(told["runs"]) == 1


def test_no_page_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoGallery, match="is no folder"):
        make(tmp_path / "none", tmp_path / "g.html", MB)
    with pytest.raises(NoGallery, match="holds no notebook that gpufair has run"):
        make(tmp_path, tmp_path / "g.html", MB)
    write(tmp_path / "out.ipynb", code("x"), parameters={})
    with pytest.raises(NoGallery, match="cannot be written"):
        make(tmp_path, tmp_path / "none" / "g.html", MB)
    (tmp_path / "taken").mkdir()
    with pytest.raises(NoGallery, match="cannot be written"):
        make(tmp_path, tmp_path / "taken", MB)
    assert {one.name for one in tmp_path.iterdir()} == {"out.ipynb", "taken"}
