"""What operators are told about process images: never a guess, and never an error."""

import os
import stat

import pytest

from gpufair.node import process_image


def _program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv(process_image.SWITCH, raising=False)
    return tmp_path


def _state(tool):
    return dict(process_image.detected())[tool]


def _linux(monkeypatch, release):
    known = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((known[0], known[1], release, known[3], known[4])))


def test_what_is_not_there_is_not_there(path):
    assert dict(process_image.detected()) == {"CRIU": "not installed", "cuda-checkpoint": "not installed"}


@pytest.mark.parametrize(
    ("version", "linux", "said"),
    [
        ("Version: 4.1.1", "6.18.5", "4.1.1: cannot dump a Jupyter kernel on Linux 6.18 (criu issue 2705)"),
        ("Version: 3.17.1", "6.16.0-amd64", "3.17.1: cannot dump a Jupyter kernel on Linux 6.16"),
        ("Version: 4.1.1", "6.1.0-13", "4.1.1: `criu check` says: Looks good."),
        ("Version: 4.3", "6.18.5", "4.3: `criu check` says: Looks good."),
        ("nonsense", "6.18.5", "installed, but does not tell its version"),
    ],
)
def test_criu_is_known_not_to_work_where_that_was_seen(path, monkeypatch, version, linux, said):
    _program(path, "criu", f'[ "$1" = check ] && echo "Looks good." || echo "{version}"')
    _linux(monkeypatch, linux)
    assert _state("CRIU").startswith(said)


def test_a_plugin_that_is_switched_on_and_not_installed_is_named(path, monkeypatch):
    monkeypatch.setenv(process_image.SWITCH, "criu")
    assert "not installed" in _state("plugin criu")
    with pytest.raises(process_image.ImageFailed, match="of such plugins there are: none"):
        process_image.chosen()


def test_without_a_switch_nothing_is_used(path):
    assert process_image.chosen() is None
    assert process_image.of({"restore": None}) is None
