"""The small lab of the demo: two nodes with a virtual GPU each, two teams, two researchers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

OWNER, GUEST = "ria", "ben"


@dataclass(frozen=True, slots=True)
class Lab:
    """Where the demo's files are, and what its sessions are promised."""

    folder: Path
    protection_s: int
    guest_protection_s: int = 10
    alone: bool = False  # one person plays both teams

    @property
    def state(self) -> Path:
        """State folder of the service."""
        return self.folder / "state"

    @property
    def config(self) -> Path:
        """The service's config file."""
        return self.folder / "gpufair.toml"

    @property
    def notebooks(self) -> Path:
        """Folder that Jupyter serves."""
        return self.folder / "notebooks"

    def write(self) -> None:
        """Write config, budgets and notebooks. Existing notebooks are left as they are."""
        self.notebooks.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            _CONFIG.format(protection_s=self.protection_s, guest_protection_s=self.guest_protection_s)
        )
        guests = json.dumps([GUEST, OWNER] if self.alone else [GUEST])
        (self.folder / "budgets.toml").write_text(_BUDGETS.format(guests=guests))
        for name in ("digits.ipynb", "baseline.ipynb"):
            if not (self.notebooks / name).exists():
                (self.notebooks / name).write_text(json.dumps(document(name), indent=1) + "\n")

    def environment(self) -> dict[str, str]:
        """Environment of a Jupyter server that runs the embedded service of this lab."""
        return {"GPUFAIR_CONFIG": str(self.config), "GPUFAIR_STATE_DIR": str(self.state), "GPUFAIR_USER": OWNER}


def document(name: str) -> dict[str, Any]:
    """A notebook of the demo as a JSON object."""
    text = (resources.files(__package__) / "notebooks" / name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


_CONFIG = """\
budgets = "budgets.toml"
users = ["ria", "ben"]

[service]
linger = "2m"

[grace]
session = "20s"
batch = "10s"

[[node]]
name = "node-1"
gpus = 1
gpu_type = "virtual"

[[node]]
name = "node-2"
gpus = 1
gpu_type = "virtual"

[[profile]]
name = "digits"
display_name = "Digits (1 GPU, language team)"
gpus = 1
allocation = "language/digits"
min_runtime = "{protection_s}s"

[[profile]]
name = "baseline"
display_name = "Baseline (1 GPU, vision team)"
gpus = 1
allocation = "vision/baseline"
min_runtime = "{guest_protection_s}s"
"""

_BUDGETS = """\
[[allocation]]
path = "language/digits"
share = 1
members = ["ria"]

[[allocation]]
path = "vision/baseline"
share = 1
members = {guests}
"""
