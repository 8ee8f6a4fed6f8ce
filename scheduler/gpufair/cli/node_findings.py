"""What `gpufair doctor` says of nodes: machines with an agent, and nodes of a cluster, for which there are other next steps."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Final, Literal

from gpufair.cli.words import ago, plural

if TYPE_CHECKING:
    from gpufair.client.machines import NodeView

Level = Literal["ok", "note", "warning", "problem"]
MOST_SKEW_S: Final = 2.0  # of two clocks; predicted times are shown to the second
PACKAGE: Final = "jupyter-gpufair"
_HOSTNAME: Final = "kubernetes.io/hostname"  # a label that each kubelet sets
_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``advice`` is the next step; "" where there is none."""

    about: str
    level: Level
    said: str
    advice: str = ""


def nodes_found(nodes: Sequence[NodeView], clusters: Collection[str]) -> Iterator[Finding]:
    """All that is to be said of the nodes of a service.

    Args:
        clusters: The pools whose nodes Kubernetes tells, as far as that is known here.
    """
    of_clusters = [node for node in nodes if node.pool in clusters or _HOSTNAME in node.labels]
    others = [node for node in nodes if node not in of_clusters]
    for node in others:
        yield from _lost(node) if node.state == "lost" else _ailing(node)
    yield from _in_clusters(of_clusters)
    there = [node for node in nodes if node.state != "lost"]
    gpus = sum(node.gpus for node in there)
    said = f"{plural(len(there), 'node')} with {plural(gpus, 'GPU')}"
    if gpus:
        yield Finding("nodes", "ok", said)
    elif of_clusters or (clusters and not others):
        advice = (
            "see what Kubernetes says of them: kubectl describe nodes (Allocatable has GPUs where a device plugin runs), and gpus and "
            "node_selector of [pool.kubernetes]"
        )
        yield Finding("nodes", "warning", said, advice)
    else:
        yield Finding("nodes", "warning", said, "give a [[node]] GPUs in gpufair.toml")


def _lost(node: NodeView) -> Iterator[Finding]:
    said = f"{node.name} is lost, {_heard(node)}"
    advice = f"look at the machine, and at its agent's log; `gpufair nodes remove {node.name}` if it will not come back"
    yield Finding("nodes", "problem", said, advice)


def _heard(node: NodeView) -> str:
    return f"last heard of {ago(node.last_seen_s, time.time())} ago" if node.last_seen_s else "never heard of"


def _ailing(node: NodeView) -> Iterator[Finding]:
    """What the agent of a node that is there says of its machine."""
    for said in node.problems:
        yield Finding("nodes", "problem", f"{node.name}: {said}", f"until then, `gpufair nodes cordon {node.name}`")
    if abs(node.clock_skew_s or 0.0) > MOST_SKEW_S:
        said = f"the clock of {node.name} is {node.clock_skew_s:+.0f} s off the service's"
        yield Finding("nodes", "warning", said, "let NTP set both")
    mine = metadata.version(PACKAGE)
    if node.agent_version and node.agent_version != mine:
        said = f"the agent of {node.name} is version {node.agent_version}, this command {mine}"
        yield Finding("nodes", "warning", said, "update it and start it again; sessions go on meanwhile")


def _in_clusters(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """What Kubernetes says of nodes, the same of several once."""
    told: dict[str, list[NodeView]] = {}
    for node in nodes:
        for text in node.problems or ([f"it is lost, {_heard(node)}"] if node.state == "lost" else []):
            told.setdefault(text, []).append(node)
    for text, about in told.items():
        names = ", ".join(node.name for node in about[:_FEW])
        more = f" and {len(about) - _FEW} more" if len(about) > _FEW else ""
        host = about[0].name.partition("_")[0]  # nodes with several kinds of GPUs have the kind behind it
        # What is said of one node may be meant (a cordon, a taint); what is said of all is a trouble of the pool.
        meant = text.startswith(f"{host} ") and all(node.state != "lost" for node in about)
        advice = "" if "`" in text or not (text.startswith(f"{host} ") or len(about) == 1) else f"`kubectl describe node {host}` says more"
        yield Finding("nodes", "warning" if meant else "problem", f"{names}{more}: {text}", advice)
