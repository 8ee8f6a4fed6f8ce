"""Moving torch's tensors from a GPU into host memory and back, in place: every tensor stays the object that it is.

Tensors that share memory go on sharing it, and so do parameters with their gradients and an optimizer with its state.
It frees memory of the GPU, never the GPU: the process keeps its context until it ends. Torch is not imported, only met.

Not moved: what only C++ knows (a graph's saved tensors, CUDA graphs, communication buffers) and whatever is no plain
memory (sparse, quantized, wrapped tensors). Moving replaces the accumulators of gradients, so that what has hooks on
those (DistributedDataParallel) must be wrapped again if the process goes on afterwards.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_homes: dict[int, Any] = {}  # address of host memory -> device where it belongs, of everything that is moved now
_Key = tuple[str, int, int]  # device, address, bytes: which memory


@dataclass(frozen=True, slots=True)
class _Place:
    """How a tensor looks into its memory."""

    tensor: weakref.ref[Any]  # what is deleted meanwhile need not come back
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class Moved:
    """What was moved. ``size_bytes`` of memory is on the host now."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._memories: list[tuple[Any, Any, list[_Place]]] = []  # (home device, host storage, who looks into it)

    def add(self, home: Any, host: Any, places: list[_Place]) -> None:
        """Note a piece of memory."""
        self.size_bytes += host.nbytes()
        _homes[host.data_ptr()] = home
        self._memories.append((home, host, places))

    def back(self) -> None:
        """Put everything back where it was. Raises what torch raises where that is full; what was moved then is back."""
        torch = sys.modules["torch"]
        while self._memories:
            home, host, places = self._memories[-1]
            if any(place.tensor() is not None for place in places):
                _point(places, torch.UntypedStorage(host.nbytes(), device=home).copy_(host))
            self._memories.pop()
            del _homes[host.data_ptr()]
            self.size_bytes -= host.nbytes()


def home_of(storage: Any) -> Any:
    """The device on which a storage is, or where it belongs if it was moved."""
    if _homes and storage.device.type == "cpu":
        return _homes.get(storage.data_ptr(), storage.device)
    return storage.device


def before_a_save() -> Moved | None:
    """Get what is on GPUs into host memory, for a save after which the process ends; None where nothing was moved.

    A pass that meets something unsavable is begun again, and each time it would copy all memory of the GPUs. Moved, it
    is copied once. A session that goes on afterwards would have to pay for the way back, so there it does not pay.
    JAX's arrays cannot be moved, but they keep a copy for the host, which is begun for all at once. CuPy's arrays have
    neither: they are copied when their turn comes.
    """
    jax: Any = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "live_arrays"):
        for array in jax.live_arrays():
            if not array.is_deleted() and array.is_fully_addressable and array.platform() != "cpu":
                array.copy_to_host_async()
    tensors = tensors_on()
    return move_out(tensors) if tensors else None


def tensors_on(kind: str = "cuda") -> list[Any]:
    """All tensors of the process that are on devices of this kind, as far as Python knows them."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return []
    found: dict[int, Any] = {}
    for value in gc.get_objects():
        if issubclass(type(value), torch.Tensor):  # type(): a proxy's __class__ would be asked for its referent
            found[id(value)] = value
    for value in list(found.values()):
        if value.is_leaf and (gradient := value.grad) is not None:  # until it is asked for, only C++ knows it
            found[id(gradient)] = gradient
    return [value for value in found.values() if value.device.type == kind]


def move_out(tensors: Iterable[Any] | None = None, *, kind: str = "cuda", pin: bool = False) -> Moved:
    """Move tensors, by default all that there are, into host memory. Main thread, while no cell runs.

    Args:
        tensors: All that look into the memory to be moved must be among them: what is left out keeps a copy.
        kind: Type of device that they are on.
        pin: Into page-locked memory: quicker to copy, slow to get. For what will be moved back.

    Raises:
        RuntimeError: Torch's, where the host is full. Everything is back where it was then.
    """
    torch: Any = sys.modules.get("torch")
    moved = Moved()
    chosen = tensors_on(kind) if tensors is None else list(tensors)
    memories: dict[_Key, list[Any]] = {}
    for tensor in chosen:
        if (key := _memory(tensor)) is not None:
            memories.setdefault(key, []).append(tensor)
    try:
        for looking in memories.values():
            if all(_plain(tensor, torch) for tensor in looking):
                _move(looking, moved, torch, pin=pin)
    except BaseException:
        moved.back()
        raise
    if kind == "cuda" and moved.size_bytes:
        torch.cuda.empty_cache()  # else torch keeps the memory for itself, and the GPU stays as full as it was
    return moved


def _move(looking: list[Any], moved: Moved, torch: Any, *, pin: bool) -> None:
    storage = looking[0].untyped_storage()
    host = torch.UntypedStorage(storage.nbytes(), device="cpu")
    if pin:
        host = host.pin_memory()
    host.copy_(storage)
    places = [
        _Place(weakref.ref(tensor), tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride()))
        for tensor in looking
    ]
    moved.add(storage.device, host, places)
    _point(places, host)


def _point(places: list[_Place], storage: Any) -> None:
    torch = sys.modules["torch"]
    for place in places:
        tensor = place.tensor()
        if tensor is not None:
            seen = torch.empty(0, dtype=tensor.dtype, device=storage.device)
            tensor.data = seen.set_(storage, place.offset, place.size, place.stride)


def _memory(tensor: Any) -> _Key | None:
    try:
        storage = tensor.untyped_storage()
        size = int(storage.nbytes())
        return (str(storage.device), int(storage.data_ptr()), size) if size else None
    except (RuntimeError, NotImplementedError):  # a tensor without memory of its own
        return None


def _plain(tensor: Any, torch: Any) -> bool:
    return bool(
        tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())
        and type(tensor).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # noqa: SLF001  # no wrapper
    )
