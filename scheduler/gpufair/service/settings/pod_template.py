"""The ``pod`` of a profile: what its pods are like beyond what we say ourselves, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufair.service.settings.tables import Table


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What an operator says of a profile's pods.

    Attributes:
        image: "": that of the pool.
        pod: Further fields of the pod's spec.
        container: Further fields of its container.
        labels: Of the pod; ``annotations`` likewise.
        cpus: Whole cores that its ``resources.requests`` ask for, as the profile's ``cpus``; ``memory`` in bytes.
        node_labels: Its ``nodeSelector``, as the profile's ``where``.
    """

    image: str = ""
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    memory: int = 0
    node_labels: Mapping[str, str] = field(default_factory=dict)


def read_pod_template(table: Table, key: str, folder: Path) -> PodTemplate:
    """``key`` of a profile: a table, or the name of a YAML or JSON file with the same fields.

    Raises: ConfigError: Something in it is not valid.
    """
    raise NotImplementedError
