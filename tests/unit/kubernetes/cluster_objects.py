"""Nodes and pods as an API server shows them, for the tests of what is made of them."""

from __future__ import annotations

from typing import Any


def node(name: str = "gpu-01", *, gpus: int = 8, cpu: str = "64", memory: str = "512Gi", **more: Any) -> dict[str, Any]:
    """A node that is ready. ``more``: ``labels``, ``taints``, ``conditions``, ``capacity``, ``allocatable``, ``unschedulable``."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec: dict[str, Any] = {"taints": more["taints"]} if "taints" in more else {}
    if more.get("unschedulable"):
        spec["unschedulable"] = True
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"nvidia.com/gpu.product": "H100"} | more.get("labels", {})},
        "spec": spec,
        "status": {
            "capacity": amounts | more.get("capacity", {}),
            "allocatable": amounts | more.get("allocatable", {}),
            "conditions": more.get("conditions", [{"type": "Ready", "status": "True"}]),
        },
    }


def container(name: str = "c", /, **requests: Any) -> dict[str, Any]:
    """One that asks for something; ``gpu`` stands for ``nvidia.com/gpu``."""
    asked = {("nvidia.com/gpu" if key == "gpu" else key): value for key, value in requests.items()}
    return {"name": name, "image": "x", "resources": {"requests": asked}}


def pod(name: str = "theirs", on: str = "gpu-01", *containers: dict[str, Any], namespace: str = "other", **more: Any) -> dict[str, Any]:
    """Somebody's. ``more``: ``phase``, ``labels``, and further fields of the spec."""
    phase, labels = more.pop("phase", "Running"), more.pop("labels", {})
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": on, "containers": list(containers), **more},
        "status": {"phase": phase},
    }
