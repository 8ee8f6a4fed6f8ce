"""Whose budget a job of a trace is: a leaf of the tree that was given, or of one drawn from the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation
from gpufair.core.tree import Tree
from gpufair.core.units import MINUTE, AllocationPath
from gpufair.sim.errors import UnknownProjects
from gpufair.sim.shape.drafts import OTHER


def match(allocations: Sequence[Allocation], projects: Sequence[str]) -> dict[str, AllocationPath]:
    """The leaf of each project: the one with its path, else the only one with its name as the last, else ``other``.

    Raises:
        BudgetError: The tree is not valid, or nobody has a share of it.
        UnknownProjects: Some have no leaf, and there is no leaf ``other``.
    """
    tree = Tree(allocations)
    if not any(tree[leaf].entitlement for leaf in tree.leaves):
        raise BudgetError("no allocation of the tree has a share; give at least one a share above 0")
    by_name: dict[str, list[AllocationPath]] = {}
    for leaf in tree.leaves:
        by_name.setdefault(leaf.rpartition("/")[2], []).append(leaf)
    leaves: dict[str, AllocationPath] = {}
    unknown = []
    for project in projects:
        named = by_name.get(project, [])
        if tree.is_leaf(AllocationPath(project)):
            leaves[project] = AllocationPath(project)
        elif len(named) == 1:
            leaves[project] = named[0]
        elif len(by_name.get(OTHER, [])) == 1:
            leaves[project] = by_name[OTHER][0]
        else:
            unknown.append(project)
    if unknown:
        raise UnknownProjects(tuple(unknown), tree.leaves)
    return leaves


def drawn(
    usage: Mapping[str, int], levels: int, equal: bool
) -> tuple[tuple[Allocation, ...], dict[str, AllocationPath]]:
    """A tree in which each project is a leaf, and the leaf of each.

    Args:
        usage: GPU-ms of each project.
        levels: 1: all are siblings. 2: under groups that had about as much each.
        equal: Every project has the same entitlement; else in proportion to its usage, a GPU-minute at the least.
    """
    shares = {project: 1 if equal else max(1, round(used / MINUTE)) for project, used in sorted(usage.items())}
    groups = dict.fromkeys(shares, "") if levels == 1 else _grouped(shares)
    leaves: dict[str, AllocationPath] = {}
    above: dict[str, int] = {}
    for project, group in groups.items():
        # A project may be called a/b; it is one leaf all the same.
        name = "/".join(part for part in (group, project.replace("/", ".")) if part)
        while name in leaves.values():
            name += "_"
        leaves[project] = AllocationPath(name)
        if group:
            above[group] = above.get(group, 0) + shares[project]
    allocations = [Allocation(AllocationPath(group), str(share)) for group, share in sorted(above.items())]
    allocations += [Allocation(leaves[project], str(share)) for project, share in shares.items()]
    return tuple(allocations), leaves


def _grouped(shares: Mapping[str, int]) -> dict[str, str]:
    """About as many groups as there are projects in each; the largest projects are dealt first."""
    count = max(1, round(len(shares) ** 0.5))
    sums = [0] * count
    groups: dict[str, str] = {}
    for project in sorted(shares, key=lambda project: (-shares[project], project)):
        number = min(range(count), key=lambda group: (sums[group], group))
        sums[number] += shares[project]
        groups[project] = f"group-{number + 1}"
    return groups
