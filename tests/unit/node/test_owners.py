"""Whose account a workload gets, and what root does and does not do in folders of others."""

from __future__ import annotations

import getpass
import json
import os
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from gpufair.node import theirs
from gpufair.node.files import open_append
from gpufair.node.owners import Account, NoAccount, Owners
from gpufair.node.reports import read
from gpufair.node.theirs import NotTheirs, closed_to, give_folder, give_places, open_theirs, read_theirs

SOMEBODY = Account("somebody", 64_811, 64_811, (64_811,), "/", "/bin/sh")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"users": {"ada": 7}}, "has to be its name"),
        ({"users": {"ada": {}}}, "have to be numbers"),
        ({"users": {"ada": {"uid": True}}}, "have to be numbers"),
        ({"users": {"ada": {"uid": -1}}}, "have to be numbers"),
        ({"users": {"ada": {"uid": 2000, "name": "x"}}}, "'name' is unknown"),
        ({"users": {"ada": {"uid": 2000, "home": "here"}}}, "absolute"),
        ({"users": []}, "tables"),
        ({"least_uid": 0}, "from 1"),
        ({"least": 1}, "'least' is unknown"),
        ({"environment": {"A": 1}}, "texts"),
    ],
)
def test_a_wrong_table_is_refused_by_name(table: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Owners.read(table)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("root", "no account of a person"),
        ("system", "no account of a person"),
        ("as-root", "no account of a person"),
        ("rooted", "not in root's group"),
        ("zoe\0", "no account on this machine"),
        ("nobody-has-this-name", "no account on this machine"),
    ],
)
def test_nobody_runs_as_root_or_as_nobody_knows_whom(user: str, said: str) -> None:
    """Whatever the table says, and however low it sets the limit."""
    table = {"system": {"uid": 999}, "as-root": {"uid": 0}, "rooted": {"uid": 2000, "gid": 0}}
    with pytest.raises(NoAccount, match=said):
        Owners.read({"users": table}).account(user)
    if user != "system":
        with pytest.raises(NoAccount):
            Owners.read({"users": table, "least_uid": 1}).account(user)


def test_an_account_is_found_by_its_name_or_by_the_table() -> None:
    me = getpass.getuser()
    owners = Owners.read({"users": {"ada@lab.org": "nobody", "bo": {"uid": 2000, "groups": [7]}}, "least_uid": 1})
    known = owners.account("ada@lab.org")
    assert (known.name, known.uid > 0, known.gid in known.groups) == ("nobody", True, True)
    assert owners.account("bo") == Account("bo", 2000, 2000, (2000, 7), "/", "/bin/sh")
    assert Account.read(json.loads(json.dumps(asdict(known)))) == known
    base = {"PATH": "/bin", "LC_ALL": "C", "HOME": "/root", "USER": me, "AWS_SECRET": "x", "GPUFAIR_TOKEN": "x", "LD_PRELOAD": "x"}
    assert owners.account("bo").environment(base) == {
        "PATH": "/bin", "LC_ALL": "C", "HOME": "/", "USER": "bo", "LOGNAME": "bo", "SHELL": "/bin/sh",
    }  # fmt: skip


def test_only_a_plain_file_of_theirs_is_opened(tmp_path: Path) -> None:
    """No link of either kind, no pipe, no folder, and nobody else's."""
    me = os.geteuid()
    plain, other = tmp_path / "plain", tmp_path / "other"
    plain.write_text("text")
    other.write_text("secret")
    (tmp_path / "symbolic").symlink_to(other)
    (tmp_path / "hard").hardlink_to(other)
    os.mkfifo(tmp_path / "pipe")
    assert read_theirs(plain, me) == b"text"
    for name in ("symbolic", "hard", "pipe", ".", "missing"):
        with pytest.raises(OSError, match=name.replace(".", "no plain")):
            open_theirs(tmp_path / name, me)
    with pytest.raises(OSError, match="no plain file of user id"):
        open_theirs(plain, me + 1)


def test_what_a_supervisor_makes_up_is_left_out(tmp_path: Path) -> None:
    good = {"n": 1, "at_s": 1.5, "kind": "serving", "body": {}}
    bad = [
        "[" * 100_000, "7", "{}", json.dumps(good | {"n": "1"}), json.dumps(good | {"n": 1 << 60}), json.dumps(good | {"n": True}),
        json.dumps(good | {"body": []}), json.dumps(good | {"kind": 3}), json.dumps(good | {"at_s": None}),
        json.dumps(good | {"n": 2, "kind": "utilization"}),
    ]  # fmt: skip
    (tmp_path / "reports.jsonl").write_text("\n".join([*bad, json.dumps(good), '{"n": 3, "at']))
    assert read(tmp_path) == read(tmp_path, os.geteuid()) == [good]


@as_root
def test_folders_are_given_to_one_account_alone(tmp_path: Path) -> None:
    """Outputs can be read by the service's group as well, and by nobody else."""
    own, shown = tmp_path / "own", tmp_path / "shown"
    give_folder(own, SOMEBODY)
    give_folder(own, SOMEBODY)  # a second node of the same workload
    give_folder(shown, SOMEBODY, readers=4321)
    for folder, mode, gid in ((own, 0o700, SOMEBODY.gid), (shown, 0o2750, 4321)):
        about = folder.stat()
        assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (SOMEBODY.uid, gid, mode)
        os.close(open_append(folder / "file"))
    assert [stat.S_IMODE((folder / "file").stat().st_mode) for folder in (own, shown)] == [0o600, 0o640]
    assert (shown / "file").stat().st_gid == 4321
    other = Account("other", 64_812, 64_812, (64_812,), "/", "/bin/sh")
    with pytest.raises(NotTheirs, match="chown -R 64812:64812"):
        give_folder(own, other)
    (tmp_path / "link").symlink_to(own)
    with pytest.raises(OSError, match="link"):
        give_folder(tmp_path / "link", SOMEBODY)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    with pytest.raises(NotTheirs, match="belongs to user id 0"):
        give_folder(full, SOMEBODY)


@as_root
def test_the_way_to_a_workloads_places_is_opened_no_further_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state folder itself is its operator's: he is told."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setattr(theirs, "closed_to", lambda account, folder: state if not state.stat().st_mode & 0o001 else None)
    with pytest.raises(NotTheirs, match=rf"chmod o\+x {state}"):
        give_places(SOMEBODY, state / "records" / "w", f"{state}/checkpoints/ada/w")
    state.chmod(0o711)
    give_places(SOMEBODY, state / "records" / "w", f"{state}/checkpoints/ada/w")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*")}
    assert modes == {"records": 0o711, "w": 0o700, "checkpoints": 0o711, "ada": 0o700}
    give_places(SOMEBODY, state / "records" / "v", "s3://bucket/ada/v")
    (state / "records").chmod(0o777)
    with pytest.raises(NotTheirs, match="everybody may write"):
        give_places(SOMEBODY, state / "records" / "u", "s3://bucket/ada/u")


def test_the_first_closed_folder_on_the_way_is_named(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    about = tmp_path.stat()
    assert closed_to(SOMEBODY, inner) in {*inner.parents}
    owner = Account("owner", about.st_uid, about.st_gid, (about.st_gid,), "/", "/bin/sh")
    assert closed_to(owner, inner) is None
