"""JAX: arrays with their devices. They cannot change, so nothing is to be kept about memory that they share."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from gpufair.node.checkpoint.codecs.devices import not_copied, placed
from gpufair.node.checkpoint.codecs.registry import Dump, Reduced, remark
from gpufair.node.checkpoint.reasons import NotSavable


def array(obj: Any, dump: Dump) -> Reduced:
    """An array: its values, and where they are if that was asked for."""
    if obj.is_deleted():
        raise NotSavable("a JAX array whose memory was donated or deleted", "delete the variable")
    if not obj.is_fully_addressable:
        raise NotSavable("a JAX array that is spread over several processes", "gather it into this one before")
    on_device = any(device.platform != "cpu" for device in obj.devices())
    if on_device and (reduced := not_copied(obj.nbytes, dump.views)) is not None:
        return reduced
    return make_array, (sys.modules["numpy"].asarray(obj), bool(obj.weak_type), _placement(obj))


def device(obj: Any, dump: Dump) -> Reduced:
    """A device, alone or in a mesh."""
    return make_device, (obj.platform, obj.id)


def _placement(obj: Any) -> tuple[Any, ...] | None:
    """("one", platform, number) or ("mesh", platform, names, shape, spec); None where JAX chose."""
    if not obj.committed:
        return None
    devices = sorted(obj.devices(), key=lambda device: device.id)
    sharding = obj.sharding
    if len(devices) > 1 and hasattr(sharding, "mesh") and hasattr(sharding, "spec"):
        mesh = sharding.mesh
        return "mesh", devices[0].platform, tuple(mesh.axis_names), tuple(mesh.devices.shape), tuple(sharding.spec)
    return "one", devices[0].platform, devices[0].id


def make_array(values: Any, weak: bool, placement: tuple[Any, ...] | None) -> Any:
    """Called by name from checkpoints."""
    jax: Any = import_module("jax")
    made = jax.numpy.asarray(values)
    if weak:
        made = import_module("jax._src.lax.lax")._convert_element_type(made, weak_type=True)  # noqa: SLF001
    if placement is None:
        return made
    where, platform, *rest = placement
    present = _present(platform)
    if where == "mesh":
        names, shape, spec = rest
        count = 1
        for length in shape:
            count *= length
        if count <= len(present):
            mesh = jax.sharding.Mesh(_grid(present[:count], shape), names)
            return jax.device_put(made, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))
        remark(f"JAX arrays that were spread over {count} {platform} devices are on one device now")
        return made
    here = placed(rest[0], len(present))
    if here is None:
        remark(f"JAX arrays that were on {platform} are on {jax.devices()[0].platform} now")
        return made
    return jax.device_put(made, present[here])


def make_device(platform: str, number: int) -> Any:
    """Called by name from checkpoints."""
    jax: Any = import_module("jax")
    present = _present(platform)
    here = placed(number, len(present))
    if here is None:
        remark(f"JAX's {platform} devices are its {jax.devices()[0].platform} devices now")
        present = jax.devices()
    return present[here or 0]


def _present(platform: str) -> list[Any]:
    try:
        return list(import_module("jax").devices(platform))
    except RuntimeError:  # no such devices here
        return []


def _grid(devices: list[Any], shape: tuple[int, ...]) -> Any:
    numpy: Any = import_module("numpy")
    return numpy.array(devices, dtype=object).reshape(shape)
