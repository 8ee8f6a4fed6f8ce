"""Checkpoints of sessions that run as their owners' accounts: the service lists what was reported, and opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpufair.service.insight import kept
from gpufair.service.problems import CheckpointsUnreachable

ACCOUNT = 64_821
KEY = bytes(32)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_opened_that_an_account_could_have_exchanged(tmp_path: Path) -> None:
    """It has the key of its checkpoints, so a signature proves nothing here; a link could lead to any file of root's."""
    own = tmp_path / "checkpoints" / "ada"
    (own / "w" / "buffers").mkdir(parents=True)
    (tmp_path / "secret").write_text("of root")
    (own / "w" / "buffers" / ("0" * 64)).symlink_to(tmp_path / "secret")
    directory, reported = str(own / "w"), [{"id": "a"}, {"id": "b"}]
    assert kept.present(directory, reported) == []
    os.chown(own, ACCOUNT, ACCOUNT)
    assert kept.present(directory, reported) == [{"id": "b"}, {"id": "a"}]
    for work in (
        lambda: kept.verified(directory, KEY), lambda: kept.pruned(directory, KEY, 1, 0.0),
        lambda: list(kept.exported(directory, KEY, "a")),
    ):  # fmt: skip
        with pytest.raises(CheckpointsUnreachable, match="belong to the account with user id 64821"):
            work()
    assert kept.present(str(tmp_path / "nobody" / "w"), reported) == []
