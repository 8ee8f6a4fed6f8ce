"""With GPUFAIR_COMPILED=1 in the environment a wheel holds the compiled core, and is for one platform and Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCore(BuildHookInterface[Any]):  # type: ignore[misc]  # installed only where wheels are built
    """Called by hatchling for each wheel; does nothing without that variable, nor for an editable install."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return ["mypy>=1.13", "setuptools"] if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are packed."""
        if version == "editable" or not _wanted():
            return
        sys.path.insert(0, str(Path(__file__).parent))
        from compile_core import compiled  # noqa: PLC0415

        folder = compiled(Path(self.root) / "build" / "compiled")
        package = folder / "gpufair"
        # The compiled core has a first module of its own.
        self.build_config.target_config.setdefault("exclude", []).append("/scheduler/gpufair/core/__init__.py")
        for path in (*folder.glob("*.so"), *package.rglob("*.so"), package / "core" / "__init__.py"):
            build_data["force_include"][str(path)] = str(path.relative_to(folder))
        build_data["pure_python"], build_data["infer_tag"] = False, True


def _wanted() -> bool:
    return os.environ.get("GPUFAIR_COMPILED") == "1"
