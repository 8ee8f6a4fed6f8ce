"""`gpufair gallery`: the page is made by the process above, and what it says is passed on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.output_notebooks import code, write
from tests.unit.cli.conftest import Gpufair


def test_a_page_and_what_it_shows(gpufair: Gpufair, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "out.ipynb", code("x"), parameters={"lr": 0.1})
    (tmp_path / "runs" / "cut.ipynb").write_text("{")
    page = tmp_path / "page.html"
    seen = gpufair("gallery", str(tmp_path / "runs"), "--out", str(page))
    assert seen.code == 0, seen.err
    assert f"{page} shows 1 run (" in seen.out
    assert "skipped: cut.ipynb: " in seen.out
    told = json.loads(gpufair("gallery", str(tmp_path / "runs"), "--out", str(page), "--json").out)
    assert told["page"] == str(page)
    assert told["size_bytes"] == page.stat().st_size
    assert [(one["path"], one["parameters"]) for one in told["runs"]] == [("out.ipynb", {"lr": 0.1})]


def test_a_folder_without_runs(gpufair: Gpufair, tmp_path: Path) -> None:
    seen = gpufair("gallery", str(tmp_path), "--json")
    assert (seen.code, seen.out) == (1, "")
    assert "holds no notebook that gpufair has run" in json.loads(seen.err)["detail"]
