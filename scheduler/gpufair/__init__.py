"""Fair sharing of GPUs between sessions: the scheduler, without Jupyter.

Names for user code (`gpufair.safe_point`, ...) are looked up on first use, so that importing
any one part of the package costs only that part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufair.node.checkpoint.codecs.registry import codec
    from gpufair.node.checkpoint.preflight import preflight
    from gpufair.workload.loops import resumable
    from gpufair.workload.preemption import on_preempt, safe_point

__all__ = ["codec", "on_preempt", "preflight", "resumable", "safe_point"]

# Public name -> module that defines it. Only what a notebook's author calls belongs here.
_PUBLIC: dict[str, str] = {
    "codec": "gpufair.node.checkpoint.codecs.registry",
    "on_preempt": "gpufair.workload.preemption",
    "preflight": "gpufair.node.checkpoint.preflight",
    "resumable": "gpufair.workload.loops",
    "safe_point": "gpufair.workload.preemption",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata  # noqa: PLC0415  # 40 ms, which each start of a kernel would pay

        return metadata.version("jupyter-gpufair")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'gpufair' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "__version__"])
