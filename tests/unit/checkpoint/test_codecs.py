"""Codecs of the user, and where arrays of devices go."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpufair.node.checkpoint.codecs import registry
from gpufair.node.checkpoint.codecs.devices import placed
from tests.unit.checkpoint.two_processes import TwoProcesses

RESEARCHERS = Path(__file__).parents[3] / "docs" / "researchers.md"


def _needs(name: str) -> None:
    if find_spec(name) is None:  # not imported here: it is for the two processes
        pytest.skip(f"{name} is not installed")


@pytest.fixture
def place(tmp_path: Path) -> TwoProcesses:
    return TwoProcesses(tmp_path / "place")


def test_the_example_of_the_documentation_works(place: TwoProcesses) -> None:
    section = RESEARCHERS.read_text().partition("## Types that need help")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    work = "db = sqlite3.connect(WORK + '/a.db'); db.execute('create table t(v)'); db.execute('insert into t values (7)'); db.commit()"
    saved = place.save(example[1], work, "lost = sqlite3.connect(':memory:'); holder = {'db': db}")
    assert list(saved["lost"]) == ["lost"]
    assert "in memory only" in saved["lost"]["lost"]
    check = "assert db.execute('select v from t').fetchone() == (7,) and holder['db'] is db"
    assert place.restore({"db": check})["answers"] == {"db": "ok"}


def test_a_codec_is_there_after_the_restore_and_is_saved_again(place: TwoProcesses) -> None:
    """The registry is the process's; the session must not lose its codecs at the second move."""
    again = TwoProcesses(place.folder / "again")
    place.save(
        "import gpufair, threading\nclass Guard:\n  def __init__(self, n): self.n, self.lock = n, threading.Lock()\n"
        "@gpufair.codec(Guard)\ndef anew(g): return Guard, (g.n,)\ng = Guard(3)"
    )
    move = (
        "from gpufair.node import checkpoint; r = checkpoint.save(globals(), "
        f"directory={str(again.folder / 'checkpoints')!r}, id='all', sequence=2, key=place['key'], meta={{}}, "
        "hidden=frozenset(('WORK', 'asked', 'place', 'checkpoint'))); assert r.lost == (), r.lost"
    )
    assert place.restore({"save": f"place = {{'key': {b'the key of one user, 32 bytes ok'!r}}}\n{move}"})[
        "answers"
    ] == {"save": "ok"}
    assert again.restore({"use": "assert g.n == 3 and g.lock.acquire(False)"})["answers"] == {"use": "ok"}


def test_a_codec_is_for_a_type_and_its_subclasses_and_the_nearest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base: ...

    class Middle(Base): ...

    class Leaf(Middle): ...

    monkeypatch.setattr(registry, "_user", {})
    assert registry.lookup(Leaf) is None
    registry.codec(Base)(lambda obj: ("base", ()))
    registry.codec(f"{Middle.__module__}.{Middle.__qualname__}")(lambda obj: ("middle", ()))
    found = registry.lookup(Leaf)
    assert found is not None
    assert found(Leaf(), None) == ("middle", ())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [5, None, "", "a b", "x.", object()])
def test_what_is_no_type_is_refused_at_once(kind: object) -> None:
    with pytest.raises(registry.NoCodec, match=r"module\.Type"):
        registry.codec(kind)  # type: ignore[arg-type]


def test_devices_are_kept_folded_or_left() -> None:
    assert [placed(n, 4) for n in range(4)] == [0, 1, 2, 3]
    assert [placed(n, 2) for n in range(4)] == [0, 1, 0, 1]
    assert placed(3, 0) is None


def test_arrays_of_a_gpu_go_to_another_or_to_the_host(place: TwoProcesses) -> None:
    _needs("numpy")
    place.save("import cupy\nwith cupy.cuda.Device(1): c = cupy.arange(5)\ncut = c[1:3]")
    one = place.restore(
        {"c": "assert c.device.id == 0 and c.get()[3] == 3; c[1] = 9; assert cut.get()[0] == 9"}, FAKE_GPUS="1"
    )
    assert one["answers"] == {"c": "ok"}
    assert "GPU 1 are on GPU 0" in one["warnings"][0]
    none = place.restore(
        {"c": "import numpy; assert type(c) is numpy.ndarray; c[1] = 9; assert cut[0] == 9"}, FAKE_GPUS="0"
    )
    assert none["answers"] == {"c": "ok"}
    assert "NumPy arrays now" in none["warnings"][0]


def test_jax_on_fewer_devices(place: TwoProcesses) -> None:
    _needs("jax")
    place.save(
        "import jax; a = jax.device_put(jax.numpy.arange(4.), jax.devices()[3])\n"
        "mesh = jax.sharding.Mesh(jax.devices(), ('x',))\n"
        "b = jax.device_put(jax.numpy.arange(8.), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('x')))",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    back = place.restore(
        {"a": "assert a.devices() == {jax.devices()[1]} and a[3] == 3", "b": "assert b.sum() == 28"},
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert back["answers"] == {"a": "ok", "b": "ok"}
    assert any("spread over 4" in text for text in back["warnings"])


def test_torch_devices_that_are_not_there_are_the_cpu_and_it_is_said(place: TwoProcesses) -> None:
    _needs("torch")
    place.save("import torch; d = torch.device('cuda', 5); m = torch.device('meta'); t = torch.ones(2)")
    back = place.restore({"d": "assert d.type == 'cpu' and m.type == 'meta' and t.to(d).sum() == 2"})
    assert back["answers"] == {"d": "ok"}
    assert [("cuda" in text and "CPU" in text) for text in back["warnings"]] == [True]


def test_memory_of_a_gpu_is_copied_once_however_many_passes_a_save_takes(place: TwoProcesses) -> None:
    """Something that cannot be saved makes a pass begin again, and arrays that turn out to share memory another one."""
    _needs("numpy")
    saved = place.save(
        "import cupy, numpy as np\nc = cupy.arange(5)\nbad = (i for i in range(3))\n"
        "flat = np.arange(10.); parts = [flat[:5], flat[5:]]; del flat\n"
        "copies = []; plain = cupy.asnumpy; cupy.asnumpy = lambda a: (open(WORK + '/copies', 'a').write('x'), plain(a))[1]"
    )
    assert list(saved["lost"]) == ["bad"]
    assert (place.work / "copies").read_text() == "x"


def test_memory_of_a_gpu_is_not_copied_to_be_looked_at(place: TwoProcesses) -> None:
    """A look after each cell would otherwise take as long as the save that it is to spare."""
    _needs("numpy")
    place.save(
        "import cupy, numpy as np\nc = cupy.arange(1_000_000); n = np.arange(1_000_000)\n"
        "from gpufair.node import checkpoint\nfrom gpufair.node.checkpoint.preflight import look\n"
        "tracker = checkpoint.Tracker(); own = frozenset(globals()) - {'c', 'n'}\n"
        "checkpoint.save(globals(), directory=WORK + '/first', id='a', sequence=1, key=b'k' * 32, meta={}, hidden=own, tracker=tracker)\n"
        "def never(a): raise AssertionError('copied')\ncopy, cupy.asnumpy = cupy.asnumpy, never",
        "seen = checkpoint.changes(globals(), tracker, hidden=own | {'never', 'copy', 'own', 'tracker', 'seen'})\n"
        "assert 'c' in seen.changed, seen\n"
        "sizes = {one.name: one.size_bytes for one in look(globals(), ['c', 'n']).variables}\n"
        "assert 8_000_000 < sizes['c'] < 8_100_000 and 8_000_000 < sizes['n'] < 8_100_000, sizes\ncupy.asnumpy = copy\n"
        "del tracker, seen, look, never, copy",
    )
    assert place.restore({"c": "assert c.get()[3] == 3"})["answers"] == {"c": "ok"}
