"""The Jupyter side of gpufair: kernels that get their GPUs through the scheduler.

Importing this package imports nothing else. A user's kernel imports `jupyter_gpufair.kernel`
in an environment that may hold no server, so whatever the server needs is imported inside the
functions that only a server calls.
"""

from __future__ import annotations

from typing import Any


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Where the built front end lies. Called by `jupyter labextension develop`."""
    return [{"src": "labextension", "dest": "@gpufair/labextension"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """The server extension. Called by Jupyter Server when it loads its extensions."""
    from jupyter_gpufair.app import GpufairExtension  # noqa: PLC0415 - a kernel has no server

    return [{"module": "jupyter_gpufair", "app": GpufairExtension}]
