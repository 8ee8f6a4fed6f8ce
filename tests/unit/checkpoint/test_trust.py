"""Unpickling is running code: whatever is not exactly what its owner wrote is refused before any of it runs."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint import CheckpointMissing, CheckpointRejected
from tests.unit.checkpoint.conftest import file_of
from tests.unit.checkpoint.two_processes import KEY

FOREIGN = b"the key of another user, as long"


class Marked:
    """Unpickling it makes a file: how the tests see that code has run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code-has-run"


@pytest.fixture
def folder(tmp_path: Path, marker: Path) -> Path:
    """A checkpoint "c" with an object that leaves a trace when it is unpickled, and with two large buffers."""
    namespace = {"evil": Marked(marker), "a": b"a", "one": bytearray(b"1" * 100_000), "v": _large(1), "w": _large(2)}
    directory = tmp_path / "checkpoints"
    checkpoint.save(namespace, directory=str(directory), id="c", sequence=1, key=KEY, meta={})
    assert not marker.exists()
    return directory


def _large(fill: int) -> Any:
    numpy = pytest.importorskip("numpy")
    return numpy.full(30_000, float(fill))


def _load(folder: Path, name: str = "c", key: bytes = KEY) -> tuple[dict[str, Any], checkpoint.RestoreResult]:
    namespace: dict[str, Any] = {"before": 1}
    try:
        return namespace, checkpoint.load(namespace, directory=str(folder), id=name, key=key)
    except Exception:
        assert namespace == {"before": 1}, "a refusal changes nothing"
        raise


def test_the_untouched_checkpoint_loads_and_runs_its_code(folder: Path, marker: Path) -> None:
    """Without this the refusals below would prove nothing."""
    namespace, result = _load(folder)
    assert marker.exists()
    assert set(result.restored) == {"evil", "a", "one", "v", "w"}
    assert namespace["before"] == 1


def test_another_users_key_is_refused(folder: Path, marker: Path) -> None:
    with pytest.raises(CheckpointRejected, match="belongs to another user"):
        _load(folder, key=FOREIGN)
    assert not marker.exists()
    assert checkpoint.latest(str(folder), FOREIGN) is None


def test_a_checkpoint_signed_by_another_user_is_refused(folder: Path, marker: Path, tmp_path: Path) -> None:
    """Somebody puts a folder of their own, whole and signed with their key, where ours should be."""
    checkpoint.save({"x": Marked(marker)}, directory=str(tmp_path / "o"), id="c", sequence=9, key=FOREIGN, meta={})
    shutil.rmtree(folder / "c")
    shutil.copytree(tmp_path / "o" / "c", folder / "c")
    with pytest.raises(CheckpointRejected, match="signature"):
        _load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("change", ["flip", "truncate", "append", "empty", "swap"])
def test_an_altered_stream_is_refused(change: str, folder: Path, marker: Path) -> None:
    stream = json.loads((folder / "c" / "manifest.json").read_bytes())["body"]["stream"]
    (path,) = (folder / "buffers").glob(f"{stream[0]}*")
    data = path.read_bytes()
    path.write_bytes(
        {
            "flip": data[:-10] + bytes([data[-10] ^ 1]) + data[-9:],
            "truncate": data[: len(data) // 2],
            "append": data + b"more",
            "empty": b"",
            "swap": b"cos\nsystem\n(S'touch " + bytes(marker) + b"'\ntR.",
        }[change]
    )
    with pytest.raises(CheckpointRejected, match="all of it is damaged"):
        _load(folder)
    assert not marker.exists()
    with pytest.raises(CheckpointRejected, match=f"of its file buffers/{path.name}"):
        checkpoint.verify(str(folder), "c", KEY)


def _rewritten(change: str, data: bytes) -> bytes:
    outer = json.loads(data)
    match change:
        case "sequence":
            outer["body"]["sequence"] = 99
        case "digest":
            outer["body"]["stream"] = ["0" * 64]
        case "python":
            outer["body"]["versions"]["python"] = "3.9.1"
        case "signature":
            outer["signature"] = "é"
        case "no signature":
            del outer["signature"]
        case "list":
            outer = [outer]
        case "deep":
            return b"[" * 200_000
        case "truncated":
            return data[:-20]
        case "binary":
            return b"\xff\xfe\x00"
        case "empty":
            return b""
    return json.dumps(outer).encode()


@pytest.mark.parametrize(
    "change",
    ["sequence", "digest", "python", "signature", "no signature", "list", "deep", "truncated", "binary", "empty"],
)
def test_an_altered_manifest_is_refused(change: str, folder: Path, marker: Path) -> None:
    path = folder / "c" / "manifest.json"
    path.write_bytes(_rewritten(change, path.read_bytes()))
    with pytest.raises(CheckpointRejected):
        _load(folder)
    assert not marker.exists()
    assert checkpoint.latest(str(folder), KEY) is None


def test_a_renamed_checkpoint_is_refused(folder: Path, marker: Path) -> None:
    """An old checkpoint under the name of a newer one would bring back old variables without a word."""
    (folder / "c").rename(folder / "d")
    with pytest.raises(CheckpointRejected, match="renamed or copied"):
        _load(folder, "d")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../c", "c/../c", "", ".", "..", "/etc", "c\0", "-", "nothing"])
def test_names_that_are_no_checkpoint_are_missing(name: str, folder: Path) -> None:
    with pytest.raises(CheckpointMissing):
        _load(folder, name)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "link"])
def test_a_damaged_buffer_costs_its_variable_only(damage: str, folder: Path, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    buffer = file_of(folder, _large(1).tobytes())
    match damage:
        case "flip":
            buffer.write_bytes(buffer.read_bytes()[:-1] + bytes([buffer.read_bytes()[-1] ^ 1]))
        case "truncate":
            buffer.write_bytes(buffer.read_bytes()[:-1])
        case "remove":
            buffer.unlink()
        case "link":  # the content is right, but it could be changed from elsewhere at any moment
            buffer.rename(tmp_path / "elsewhere")
            buffer.symlink_to(tmp_path / "elsewhere")
    namespace, result = _load(folder)
    assert "v" not in namespace
    assert "damaged" in dict(result.lost)["v"]
    assert numpy.array_equal(namespace["w"], _large(2))
    assert namespace["one"] == b"1" * 100_000
    with pytest.raises((CheckpointRejected, OSError)):
        checkpoint.verify(str(folder), "c", KEY)


def test_only_the_owner_may_read(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_another_python_is_refused_first(folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    with pytest.raises(CheckpointRejected, match=r"resume it on Python 3\.\d+"):
        _load(folder)
    assert not marker.exists()


def test_another_major_version_of_a_library_is_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading mostly works; when it doesn't, the user needs the reason."""
    numpy = pytest.importorskip("numpy")
    monkeypatch.setattr(numpy, "__version__", "99.0")
    _, result = _load(folder)
    assert any("numpy" in text and "99.0" in text for text in result.warnings)


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointFailed, match="the key has 5 bytes"):
        checkpoint.save({}, directory=str(tmp_path), id="c", sequence=1, key=b"short", meta={})
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_load_elsewhere_takes_along_only_what_shares_with_it(
    session: Callable[[str], dict[str, Any]], elsewhere: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """After a failure the numbers of the memo are off by as many as are missing: later variables would get wrong
    objects with no error raised."""
    cells = """
early = ['early']
class Fails:
    def __init__(self, inner): self.inner = inner
    def __setstate__(self, state): raise ValueError('not on this node')
first = Fails(['inside'])
inside = first.inner
user = Fails.__name__, inside
class Fine: ...
fine = Fine(); fine.data = [[1], [2], early]; fine.again = fine.data[0]
second = Fails(fine)
last = {'fine': fine, 'letters': [c for c in 'abc'], 'early': early}
refers = Fine(); refers.to = second
"""
    checkpoint.save(session(cells), directory=str(tmp_path), id="c", sequence=1, key=KEY, meta={})
    check = (
        "assert fine.again is fine.data[0] and fine.data == [[1], [2], ['early']] and fine.data[2] is early\n"
        "assert last['fine'] is fine and last['letters'] == ['a', 'b', 'c'] and last['early'] is early\n"
        "assert inside == ['inside'] and user == ('Fails', ['inside']) and user[1] is inside"
    )
    answer = elsewhere(tmp_path, "c", {"the rest": check})
    assert answer["answers"] == {"the rest": "ok"}
    assert answer["lost"] == {
        "first": "could not be rebuilt (ValueError: not on this node)",
        "second": "could not be rebuilt (ValueError: not on this node)",
        "refers": "shares an object with 'second', which could not be restored",
    }


def test_a_module_that_is_not_on_the_node_is_named(
    elsewhere: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "only_here.py").write_text("class Thing: ...\n")
    monkeypatch.syspath_prepend(library)
    import only_here  # type: ignore[import-not-found]

    namespace = {"only_here": only_here, "thing": only_here.Thing(), "ok": [1]}
    checkpoint.save(namespace, directory=str(tmp_path / "c"), id="c", sequence=1, key=KEY, meta={})
    kept = elsewhere(tmp_path / "c", "c", {"import path": "assert type(thing) is only_here.Thing"})
    assert kept["answers"] == {"import path": "ok"}
    shutil.rmtree(library)
    gone = elsewhere(tmp_path / "c", "c", {"the rest": "assert ok == [1]"})
    assert gone["answers"] == {"the rest": "ok"}
    assert "'only_here', which is not installed on this node" in gone["lost"]["only_here"]
    assert "thing" in gone["lost"]
