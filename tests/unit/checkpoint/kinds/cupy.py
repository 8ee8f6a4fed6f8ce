"""CuPy, as far as its interface goes: see ``fake_cupy``."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy",)
KINDS: Kinds = {
    "arrays that share memory of a GPU": (
        "import cupy; ca = cupy.arange(20_000, dtype='f8'); cb = ca[10:20]; cc = ca",
        "assert type(ca) is cupy.ndarray and cc is ca; cb[0] = -1; assert ca.get()[10] == -1 and cb.get().shape == (10,)",
    ),
    "array on another GPU": (
        "with cupy.cuda.Device(1): cd = cupy.arange(4)",
        "assert cd.device.id == 1 and cd.get()[3] == 3",
    ),
}
