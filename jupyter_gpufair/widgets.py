"""Panels in a notebook: ``BudgetPanel``, ``QueuePanel``, ``SessionPanel``, ``ClusterMap``, ``Pyramid``, ``WhatIf``.

They draw what JupyterLab's side panel draws, with the same code, and ask the Jupyter server themselves: a panel stays alive
while its kernel is parked, and is there again after a restore. What the kernel saw when the panel was made is kept in
the notebook as a table, for readers without a kernel.

    >>> from jupyter_gpufair.widgets import BudgetPanel
    >>> BudgetPanel()
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

import gpufair
from gpufair.cli.words import clean, gpu_time, percent
from gpufair.client import Client
from gpufair.client.calls import API, Call
from gpufair.core.errors import GpufairError

_BUILT = Path(__file__).parent / "labextension"
if not (_BUILT / "widget.js").exists():
    raise ImportError(f"the front end is not built ({_BUILT} has no widget.js): run `make install` in the checkout")


class _Panel(anywidget.AnyWidget):
    """A part of the lab, live. Made without arguments.

    Attributes:
        part: Which one, as the front end calls it.
        snapshot: What the service answered when it was made, by route; empty where the kernel may not ask.
    """

    _esm = _BUILT / "widget.js"
    _css = _BUILT / "widget.css"
    part = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Dict().tag(sync=True)
    routes: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(snapshot=_answers(self.routes))

    def table(self) -> str:
        """The snapshot as an HTML table, for readers without a kernel."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None and self.snapshot:
            data["text/html"] = self.table()
        return bundle


class BudgetPanel(_Panel):
    """The budget tree: what each allocation holds, waits for, is entitled to, and has used of what is due to it."""

    part = traitlets.Unicode("budgets").tag(sync=True)
    routes = ("budgets",)

    def table(self) -> str:
        rows = (
            (one["path"], f"{one['gpus_held']}", f"{100 * one['entitlement']:.1f} %", gpu_time(one["occupancy_gpu_s"]), gpu_time(one["due_gpu_s"]))
            for one in self.snapshot["budgets"]["allocations"]
        )  # fmt: skip
        return _table("Budgets", ("Allocation", "GPUs held", "Entitled to", "Used", "Due"), rows)


class QueuePanel(_Panel):
    """Who waits, in the order in which they will be served; each line opens to say why."""

    part = traitlets.Unicode("queue").tag(sync=True)
    routes = ("queue", "budgets")

    def table(self) -> str:
        rows = (
            (str(one["position"]), one["name"] or one["id"][:8], one["user"], one["allocation"], str(one["gpus"] * one["nodes"]))
            for one in self.snapshot["queue"]["workloads"][:_MOST]
        )  # fmt: skip
        return _table("Queue", ("Place", "Name", "User", "Allocation", "GPUs"), rows)


class ClusterMap(_Panel):
    """Every node with its GPUs, coloured by team, and who held which of them in the last hours."""

    part = traitlets.Unicode("cluster").tag(sync=True)
    routes = ("nodes", "workloads", "budgets", "history")

    def table(self) -> str:
        rows = (
            (one["name"], one["state"], one["gpu_type"] or "", f"{one['free_gpus']} of {one['gpus']}")
            for one in self.snapshot["nodes"]["nodes"][:_MOST]
        )
        return _table("Cluster", ("Node", "State", "Type", "Free GPUs"), rows)


class Pyramid(_Panel):
    """Where GPU time went: availability, occupancy, impact and utilization, each with the causes of its loss."""

    part = traitlets.Unicode("pyramid").tag(sync=True)
    routes = ("pyramid", "budgets/delivered")

    def table(self) -> str:
        levels = ("availability", "occupancy", "impact", "utilization")
        rows = (
            (pool["pool"], level, _ratio(pool[level]), gpu_time(pool[level]["kept_gpu_s"]), gpu_time(pool[level]["of_gpu_s"]))
            for pool in self.snapshot["pyramid"]["pools"]
            for level in levels
        )
        return _table("Where GPU time went", ("Pool", "Level", "Ratio", "Kept", "Of"), rows)


class SessionPanel(_Panel):
    """The user's own sessions and runs, on all servers, with what can be done with each; only in a Jupyter server's page."""

    part = traitlets.Unicode("sessions").tag(sync=True)


class WhatIf(BudgetPanel):
    """Other shares for the budgets, tried on what runs and waits now; only in a Jupyter server's page."""

    part = traitlets.Unicode("whatif").tag(sync=True)


_MOST = 100  # rows of a picture that is kept in the notebook


def _answers(routes: Iterable[str]) -> dict[str, Any]:
    """What the service says now. A kernel that may not ask it, or finds none, leaves it to the page."""
    try:
        with Client() as client:
            return {route: client.send(Call("GET", f"{API}/{route}", _brief)) for route in routes}
    except GpufairError:
        return {}


def _ratio(level: dict[str, Any]) -> str:
    """Unmeasured is unknown, never 0."""
    return "unknown" if level["ratio"] is None else percent(level["ratio"])


def _brief(answer: dict[str, Any]) -> dict[str, Any]:
    """Without those of thousands of workloads that no picture has room for: of others, who hold GPUs is enough."""
    if "since_s" in answer:
        answer["nodes"] = answer["nodes"][:_MOST]
    if "workloads" in answer:
        found = answer["workloads"]
        answer["workloads"] = [one for one in found if one["leases"]] or found[:_MOST]
    return answer


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(clean(cell, 200))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{title}</caption><thead>{line(heads, 'th')}</thead><tbody>{body}</tbody></table>"


@gpufair.codec(_Panel)
def _made_again(panel: _Panel) -> tuple[Callable[[], object], tuple[()]]:
    """A restored session has its panels again, made anew: what they show is not its state."""
    # By name: anywidget gives each instance a class of its own.
    return globals()[type(panel).__name__], ()
