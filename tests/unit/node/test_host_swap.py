"""Tensors moved into host memory and back are the tensors they were. Without a GPU: from the CPU to the CPU."""

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpufair.node import checkpoint, host_swap

torch = pytest.importorskip("torch")


def _addresses(*tensors):
    return [tensor.untyped_storage().data_ptr() for tensor in tensors]


def test_everything_that_looks_into_the_memory_moves_with_it_and_comes_back():
    base = torch.arange(12.0)
    view, turned = base[2:6], base.view(3, 4).t()
    weight = torch.nn.Parameter(torch.ones(3))
    (weight * 2).sum().backward()
    homes = _addresses(base, weight, weight.grad)
    values = [tensor.clone() for tensor in (view, turned, weight.detach(), weight.grad)]
    moved = host_swap.move_out([base, view, turned, weight, weight.grad], kind="cpu")
    assert moved.size_bytes == 12 * 4 + 3 * 4 * 2
    assert not set(_addresses(base, weight, weight.grad)) & set(homes)
    assert _addresses(view, turned) == _addresses(base, base)
    moved.back()
    assert moved.size_bytes == 0
    assert _addresses(view, turned) == _addresses(base, base)
    assert all(torch.equal(a, b) for a, b in zip((view, turned, weight, weight.grad), values, strict=True))
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    base[2] = 50.0
    assert (view[0].item(), turned.stride()) == (50.0, (1, 4))
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [4.0] * 3


def test_what_is_deleted_meanwhile_is_not_kept_alive():
    here = torch.ones(1000)
    moved = host_swap.move_out([here], kind="cpu")
    found = [t for t in host_swap.tensors_on("cpu") if t.shape == (1000,)]
    assert [id(t) for t in found] == [id(here)]
    del here, found
    gc.collect()
    assert not [t for t in host_swap.tensors_on("cpu") if t.shape == (1000,)]
    moved.back()


def test_a_full_host_leaves_everything_where_it_was(monkeypatch):
    tensors = [torch.full((10,), float(n)) for n in range(3)]
    point, left = host_swap._move, [2]

    def full(*args, **options):
        if not left[0]:
            raise RuntimeError("not enough memory")
        left[0] -= 1
        point(*args, **options)

    monkeypatch.setattr(host_swap, "_move", full)
    with pytest.raises(RuntimeError, match="not enough memory"):
        host_swap.move_out(tensors, kind="cpu")
    assert [tensor.tolist() for tensor in tensors] == [[float(n)] * 10 for n in range(3)]


def test_what_is_not_plain_memory_stays():
    sparse = torch.eye(3).to_sparse()
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    assert host_swap.move_out([sparse, conjugate], kind="cpu").size_bytes == 0
    assert conjugate.is_conj()


def test_without_torch_there_is_nothing_to_move(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert host_swap.tensors_on("cuda") == []
    assert host_swap.move_out().size_bytes == 0


def test_what_was_moved_is_saved_as_what_it_is_on_its_device(tmp_path, monkeypatch):
    """Else a session whose tensors were moved before its save would come back on the CPU."""
    space = {"base": torch.arange(6.0)}
    space["view"] = space["base"][2:]
    moved = host_swap.move_out(list(space.values()), kind="cpu")
    monkeypatch.setitem(host_swap._homes, space["base"].data_ptr(), torch.device("cuda", 1))  # as if it came from there
    key = b"0" * 32
    checkpoint.save(space, directory=str(tmp_path), id="a", sequence=1, key=key, meta={})
    found: dict[str, Any] = {}
    result = checkpoint.load(found, directory=str(tmp_path), id="a", key=key)
    assert any("was on the device cuda is on the CPU now" in text for text in result.warnings), result
    found["base"][2] = 7.0
    assert found["view"].tolist() == [7.0, 3.0, 4.0, 5.0]
    moved.back()
    assert not host_swap._homes


def test_before_a_save_all_copies_of_jax_arrays_are_begun(monkeypatch):
    begun = []

    class Array:
        is_fully_addressable = True

        def __init__(self, platform, deleted=False):
            self.platform, self.is_deleted = lambda: platform, lambda: deleted

        def copy_to_host_async(self):
            begun.append(self.platform())

    arrays = [Array("gpu"), Array("cpu"), Array("gpu", deleted=True), Array("tpu")]
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(live_arrays=lambda: arrays))
    assert host_swap.before_a_save() is None
    assert begun == ["gpu", "tpu"]
