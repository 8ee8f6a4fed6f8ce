"""Environment variables go with the session, except secrets and what belongs to the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.node.checkpoint.environment import differences
from tests.unit.checkpoint.two_processes import TwoProcesses


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "OPENAI_API_KEY",
            "DB_PASSWORD",
            "MYSQL_PWD",
            "APIKEY",
        ),
        *("GITHUB_PAT", "SENTRY_DSN", "WANDB_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE", "COOKIE_SALT"),
    ],
)
def test_a_secret_is_withheld_by_its_name(name: str) -> None:
    assert differences({}, {name: "x"}) == ({}, (name,))


def test_a_secret_is_withheld_by_its_value() -> None:
    assert differences({}, {"WHERE": "postgres://me:hush@db/x", "PAGE": "https://a/b@c"}) == (
        {"PAGE": "https://a/b@c"},
        ("WHERE",),
    )


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "GPUFAIR_SESSION", "JPY_PARENT_PID", "SLURM_JOB_ID", "PWD"])
def test_what_belongs_to_the_process_is_left_alone(name: str) -> None:
    assert differences({name: "1"}, {name: "2"}) == differences({name: "1"}, {}) == ({}, ())


@pytest.mark.parametrize("name", ["MONKEY", "KEYBOARD", "TOKENIZERS", "PATH", "OMP_NUM_THREADS", "PATTERN"])
def test_other_names_are_kept(name: str) -> None:
    expected = ({}, (name,)) if name == "TOKENIZERS" else ({name: "x"}, ())  # rather one too many
    assert differences({}, {name: "x"}) == expected


def test_changed_removed_and_huge() -> None:
    now = {"SAME": "1", "NEW": "2", "HUGE": "x" * 100_000}
    assert differences({"SAME": "1", "GONE": "3"}, now) == ({"GONE": None, "NEW": "2"}, ("HUGE",))


def test_it_holds_in_the_next_process_and_secrets_are_nowhere_in_the_store(tmp_path: Path) -> None:
    place = TwoProcesses(tmp_path / "place")
    place.save(
        "import os; os.environ['MODE'] = 'fast'; os.environ['MY_TOKEN'] = 'hush-hush'; del os.environ['LEFT']", LEFT="x"
    )
    back = place.restore(
        {"kept": "import os; assert os.environ['MODE'] == 'fast' and 'LEFT' not in os.environ"}, LEFT="x"
    )
    assert back["answers"] == {"kept": "ok"}
    assert ["MY_TOKEN" in text for text in back["warnings"]] == [True]
    files = [path for path in (place.folder / "checkpoints").rglob("*") if path.is_file()]
    assert files
    assert not any(b"hush-hush" in path.read_bytes() for path in files)
