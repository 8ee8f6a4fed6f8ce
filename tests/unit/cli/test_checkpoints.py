"""`gpufair checkpoints` against a fake service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import TRAIN, Gpufair
from tests.unit.client.fake_service import FakeService, Reply

WHOLE = {"id": "c2", "ok": True, "sequence": 2, "size_bytes": 2_500_000, "stored_bytes": 1_000_000, "saved": 7}
BROKEN = {"id": "c1", "ok": False, "reason": "checkpoint 'c1' was not loaded: its signature does not fit"}
HERE = f"/api/v1/workloads/{TRAIN}/checkpoints"


def test_the_list_says_age_size_and_what_is_not_in_it(gpufair: Gpufair, fake: FakeService) -> None:
    kept = [{"id": "c2", "sequence": 2, "at_s": 5, "size_bytes": 2_500_000, "lost": [["lock", "it is a lock"]]}]
    fake.routes[f"GET {HERE}"] = Reply(body={"checkpoints": kept})
    shown = gpufair("checkpoints", "list", "3f2a")
    assert shown.code == 0
    assert "c2" in shown.out
    assert "2.5 MB" in shown.out
    assert "lock" in shown.out
    assert gpufair("checkpoints", "list", "3f2a", "--json").json["checkpoints"][0]["id"] == "c2"
    fake.routes[f"GET {HERE}"] = Reply(body={"checkpoints": []})
    assert gpufair("checkpoints", "list", "3f2a").out == "there are no checkpoints\n"


def test_a_damaged_one_is_an_exit_code(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes[f"POST {HERE}/verify"] = Reply(body={"checkpoints": [WHOLE]})
    whole = gpufair("checkpoints", "verify", TRAIN)
    assert (whole.code, "whole" in whole.out) == (0, True)
    fake.routes[f"POST {HERE}/verify"] = Reply(body={"checkpoints": [WHOLE, BROKEN]})
    broken = gpufair("checkpoints", "verify", TRAIN)
    assert broken.code == 1
    assert "signature does not fit" in broken.out
    told = gpufair("checkpoints", "verify", TRAIN, "--json")
    assert (told.code, [one["ok"] for one in told.json["checkpoints"]]) == (1, [True, False])


def test_pruning_says_what_is_gone(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes[f"POST {HERE}/prune"] = Reply(body={"removed": ["c1"]})
    assert gpufair("checkpoints", "prune", TRAIN, "--keep", "3", "--older-than", "7d").out == "1 checkpoint removed: c1\n"
    assert json.loads(fake.asked[-1].body) == {"keep": 3, "keep_s": 7 * 86400.0}
    assert gpufair("checkpoints", "prune", TRAIN, "--keep", "0").code == 2
    assert gpufair("checkpoints", "prune", TRAIN, "--older-than", "soon").code == 2


def test_an_export_that_fails_leaves_no_file(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    fake.routes[f"GET {HERE}"] = Reply(body={"checkpoints": []})
    target = tmp_path / "c.tar"
    assert gpufair("checkpoints", "export", TRAIN, str(target)).code == 4
    refused = gpufair("checkpoints", "export", TRAIN, str(target), "--id", "c9")
    assert refused.code == 4
    assert list(tmp_path.iterdir()) == []
    target.write_text("mine")
    assert "--force replaces it" in gpufair("checkpoints", "export", TRAIN, str(target), "--id", "c9").err
    assert target.read_text() == "mine"
    unwritable = gpufair("checkpoints", "export", TRAIN, str(tmp_path / "no" / "c.tar"), "--id", "c9")
    assert (unwritable.code, "could not be written" in unwritable.err) == (1, True)
