"""PyTorch: tensors that share a storage go on sharing it, and each finds a device that is there.

Torch's own pickling copies a storage for each tensor that looks into it, and puts it into the stream.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
from importlib import import_module
from typing import Any

from gpufair.node.checkpoint.codecs.devices import not_copied, torch_device
from gpufair.node.checkpoint.codecs.registry import Dump, Reduced
from gpufair.node.checkpoint.views import Views, layout, make_view
from gpufair.node.host_swap import home_of

DETACHED = "was the result of a computation that autograd recorded; it comes back detached, without that record"


def _torch() -> Any:
    return import_module("torch")


class Storage:
    """The memory of tensors. One for each, so that the pickler's memo knows it."""

    def __init__(self, storage: Any, views: Views) -> None:
        self._storage, self._views = storage, views
        self._host: Any = None

    def __reduce__(self) -> Reduced:
        """Its bytes, from the device to the host where necessary; or the NumPy array whose memory it is."""
        size = self._storage.nbytes()
        elsewhere = self._storage.device.type != "cpu"
        if elsewhere and (reduced := not_copied(size, self._views)) is not None:
            return reduced
        if self._host is None:
            self._host = self._storage.cpu() if elsewhere else self._storage
        if size and self._host is self._storage and (owner := self._views.owner(self._storage.data_ptr(), size)):
            return make_storage_in_array, (*owner, size)
        data: Any = bytearray()
        if size:
            data = (ctypes.c_char * size).from_address(self._host.data_ptr())
            data.owner = self._host  # so that the memory lives as long as views of it
        return make_storage, (pickle.PickleBuffer(data), home_of(self._storage))


def _stored(storage: Any, dump: Dump) -> Storage:
    # Two storages over one memory (torch.from_numpy of one array, twice) are one. Empty ones have no address.
    key = ("torch", str(storage.device), storage.data_ptr() or id(storage), storage.nbytes())
    found: Storage = dump.once(key, lambda: Storage(storage, dump.views))
    return found


def array_of_tensor(obj: Any, base: Any, dump: Dump) -> Reduced:
    """A NumPy array over the memory of a tensor."""
    storage = base.untyped_storage()
    return make_array_of_tensor, (_stored(storage, dump), *layout(obj, storage.data_ptr()))


def untyped_storage(obj: Any, dump: Dump) -> Reduced:
    """A storage by itself."""
    return as_untyped, (_stored(obj, dump),)


def typed_storage(obj: Any, dump: Dump) -> Reduced:
    """A storage by itself, of the older interface."""
    return as_typed, (_stored(obj.untyped(), dump), obj.dtype)


def tensor(obj: Any, dump: Dump) -> Reduced | None:
    """A tensor, a parameter or a tensor of the user's own class, with its gradient and whatever was hung on it."""
    torch = sys.modules["torch"]
    if hasattr(obj, "materialize"):  # a parameter whose size is not known yet
        return _by_torch(obj)
    leaf = obj.is_leaf
    if obj.requires_grad and not leaf:
        dump.note(DETACHED)
        obj = obj.detach()
    kind = type(obj)
    if not _plain(obj, torch):
        return _by_torch(obj)
    made = (
        _stored(obj.untyped_storage(), dump),
        obj.dtype,
        obj.storage_offset(),
        tuple(obj.size()),
        obj.stride(),
        obj.requires_grad,
        None if kind is torch.Tensor else kind,
        (obj.is_conj(), obj.is_neg()),
    )
    state = (obj.grad if leaf else None, dict(getattr(obj, "__dict__", {})), obj._backward_hooks if leaf else None)  # noqa: SLF001
    if not any(part is not None and part != {} for part in state):
        return make_tensor, made
    return make_tensor, made, state, None, None, set_tensor_state


def _plain(obj: Any, torch: Any) -> bool:
    """Whether ``obj`` is memory, offset and strides, and nothing else."""
    if obj.layout is not torch.strided or obj.is_quantized or obj.is_meta or obj.is_nested:
        return False
    try:
        return bool(obj.untyped_storage().nbytes() >= 0)
    except (RuntimeError, NotImplementedError):  # lazy, functional, wrapped
        return False


def _by_torch(obj: Any) -> Reduced:
    reduced: Reduced = obj.__reduce_ex__(4)
    return reduced


def make_storage(data: Any, device: Any) -> Any:
    """Called by name from checkpoints.

    A copy: torch aligns memory for its kernels, whose results may differ in the last bit on memory that is not.
    """
    torch = _torch()
    size = len(memoryview(data).cast("B")) if len(data) else 0
    made: Any = torch.UntypedStorage(size, device=device)
    if size:
        made.copy_(torch.frombuffer(data, dtype=torch.uint8).untyped_storage())
    return made


def make_storage_in_array(array: Any, offset: int, size: int) -> Any:
    """Called by name from checkpoints."""
    numpy: Any = import_module("numpy")
    return _torch().from_numpy(array.ravel("K").view(numpy.uint8)[offset : offset + size]).untyped_storage()


def make_array_of_tensor(storage: Any, *place: Any) -> Any:
    """Called by name from checkpoints."""
    torch = _torch()
    return make_view(torch.empty(0, dtype=torch.uint8).set_(storage).numpy(), *place)


def as_untyped(storage: Any) -> Any:
    """Called by name from checkpoints."""
    return storage


def as_typed(storage: Any, dtype: Any) -> Any:
    """Called by name from checkpoints."""
    torch = _torch()
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def make_tensor(
    storage: Any, dtype: Any, offset: int, size: Any, stride: Any, requires_grad: bool, kind: Any, flags: Any
) -> Any:
    """Called by name from checkpoints."""
    torch = _torch()
    made: Any = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
    conjugate, negative = flags
    if conjugate:
        made = torch._conj(made)  # noqa: SLF001
    if negative:
        made = torch._neg_view(made)  # noqa: SLF001
    if kind is not None:
        return torch.Tensor._make_subclass(kind, made, requires_grad)  # noqa: SLF001 - as Parameter does
    return made.requires_grad_() if requires_grad else made


def set_tensor_state(made: Any, state: Any) -> None:
    """Gradient, attributes and hooks. Called by name from checkpoints."""
    gradient, attributes, hooks = state
    if gradient is not None:
        made.grad = gradient
    for name, value in attributes.items():
        setattr(made, name, value)
    if hooks:
        made._backward_hooks = hooks  # noqa: SLF001 - as torch's own pickling does


# ---------------------------------------------------------------------- devices and generators
def device(obj: Any, dump: Dump) -> Reduced:
    """A ``torch.device``."""
    return torch_device, (obj.type, obj.index)


def generator(obj: Any, dump: Dump) -> Reduced:
    """A random number generator with its state."""
    return make_generator, (obj.device.type, obj.device.index, obj.get_state())


def make_generator(kind: str, number: int | None, state: Any) -> Any:
    """Called by name from checkpoints."""
    torch = _torch()
    here = torch_device(kind, number)
    made = torch.Generator(here)
    if here.type == kind:  # the states of different devices are of different algorithms
        made.set_state(state)
    return made


# ---------------------------------------------------------------------- the global generators
def generator_states() -> dict[str, Any] | None:
    """States of torch's global generators: of the CPU, and of the devices that are in use."""
    torch = sys.modules.get("torch")
    if getattr(torch, "get_rng_state", None) is None:  # not, or only half, imported
        return None
    states: dict[str, Any] = {"cpu": [torch.get_rng_state()]}  # type: ignore[union-attr]
    cuda = torch.cuda  # type: ignore[union-attr]
    if cuda.is_initialized():
        states["cuda"] = cuda.get_rng_state_all()
    return states


def set_generator_states(states: dict[str, Any]) -> None:
    """Set what ``generator_states`` gave, as far as there are such devices."""
    torch = _torch()
    torch.set_rng_state(states["cpu"][0])
    if "cuda" in states and torch.cuda.is_available():
        for number, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, number)


# ---------------------------------------------------------------------- compiled modules
def script(obj: Any, dump: Dump) -> Reduced:
    """A TorchScript module or function, in its own format. What it shares with other objects is no longer shared."""
    torch = _torch()
    written = io.BytesIO()
    torch.jit.save(obj, written)
    dump.note("is TorchScript: parameters that it shares with other variables come back as copies")
    return make_script, (written.getvalue(),)


def make_script(data: bytes) -> Any:
    """Called by name from checkpoints."""
    torch = _torch()
    return torch.jit.load(io.BytesIO(data), map_location="cpu")
