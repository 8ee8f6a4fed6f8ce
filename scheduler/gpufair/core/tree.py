"""The budget tree: who is entitled to how much, and who may submit where.

An entitlement is the product of share / (sum of the siblings' shares) along the path, exact. Parents that nobody
declared are implied with share 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation
from gpufair.core.units import AllocationPath

ROOT = AllocationPath("")


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of the tree. ``entitlement`` is a fraction of the pool; ``lineage`` runs from the root to the node."""

    path: AllocationPath
    parent: AllocationPath | None
    depth: int
    share: Fraction
    entitlement: Fraction
    children: tuple[AllocationPath, ...]
    members: tuple[str, ...]
    lineage: tuple[AllocationPath, ...]


class Tree:
    """An immutable budget tree.

    Args:
        allocations: The declared nodes, in any order.

    Raises:
        BudgetError: A path is malformed or declared twice, or a share is negative or not a number.
    """

    def __init__(self, allocations: Iterable[Allocation] = ()) -> None:
        self.allocations: tuple[Allocation, ...] = tuple(allocations)
        declared: dict[AllocationPath, Allocation] = {}
        for allocation in self.allocations:
            _check_path(allocation.path)
            if allocation.path in declared:
                raise BudgetError(f"allocation {allocation.path!r} is declared twice; keep one of the two")
            declared[allocation.path] = allocation
        paths = {ROOT}
        for path in declared:
            paths.update(ancestors(path), (path,))
        children: dict[AllocationPath, list[AllocationPath]] = {path: [] for path in paths}
        for path in sorted(paths - {ROOT}):
            children[parent_of(path)].append(path)
        shares = {path: _share(declared[path]) if path in declared else Fraction(1) for path in paths}
        self._nodes: dict[AllocationPath, TreeNode] = {}
        # Parents sort before their children, so that each entitlement finds its parent's.
        for path in sorted(paths):
            parent = parent_of(path) if path else None
            above = self._nodes[parent] if parent is not None else None
            entitlement = Fraction(1)
            if above is not None:
                total = sum((shares[sibling] for sibling in above.children), Fraction(0))
                entitlement = above.entitlement * shares[path] / total if total else Fraction(0)
            self._nodes[path] = TreeNode(
                path=path,
                parent=parent,
                depth=0 if above is None else above.depth + 1,
                share=shares[path],
                entitlement=entitlement,
                children=tuple(children[path]),
                members=declared[path].members if path in declared else (),
                lineage=(path,) if above is None else (*above.lineage, path),
            )
        self.leaves: tuple[AllocationPath, ...] = tuple(
            path for path in sorted(paths) if path and not self._nodes[path].children
        )
        self._leaves = frozenset(self.leaves)
        self._diverge: dict[tuple[AllocationPath, AllocationPath], tuple[AllocationPath, AllocationPath] | None] = {}
        self._ratios = {path: node.entitlement.as_integer_ratio() for path, node in self._nodes.items()}
        self._flat: Tree | None = None
        self._upward: tuple[tuple[AllocationPath, AllocationPath], ...] | None = None
        self._below: dict[AllocationPath, frozenset[AllocationPath]] = {}

    @property
    def flat(self) -> Tree:
        """The same leaves side by side below the root, each with its entitlement as its share."""
        if self._flat is None:
            self._flat = self._flattened()
        return self._flat

    def _flattened(self) -> Tree:
        flat = Tree()
        root = replace(self._nodes[ROOT], children=self.leaves)
        leaves = (self._nodes[path] for path in self.leaves)
        flat._nodes = {ROOT: root} | {
            leaf.path: replace(leaf, parent=ROOT, depth=1, share=leaf.entitlement, lineage=(ROOT, leaf.path))
            for leaf in leaves
        }
        flat.leaves, flat._leaves = self.leaves, self._leaves
        flat._ratios = {path: self._ratios[path] for path in flat._nodes}
        return flat

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    @property
    def paths(self) -> AbstractSet[AllocationPath]:
        """Those of all nodes."""
        return self._nodes.keys()

    @property
    def upward(self) -> tuple[tuple[AllocationPath, AllocationPath], ...]:
        """Each node but the root with its parent, children before parents."""
        if self._upward is None:
            nodes = reversed(self._nodes.values())
            self._upward = tuple((one.path, one.parent) for one in nodes if one.parent is not None)
        return self._upward

    def __getitem__(self, path: AllocationPath) -> TreeNode:
        return self._nodes[path]

    def ratio(self, path: AllocationPath) -> tuple[int, int]:
        """The entitlement as numerator and denominator."""
        return self._ratios[path]

    def nodes(self) -> tuple[TreeNode, ...]:
        """All nodes, the root first, parents before children."""
        return tuple(self._nodes.values())

    def is_leaf(self, path: AllocationPath) -> bool:
        """Whether workloads can be charged to ``path``."""
        return path in self._leaves

    def leaves_below(self, path: AllocationPath) -> frozenset[AllocationPath]:
        """The leaves at and below a node."""
        known = self._below.get(path)
        if known is None:
            children = self._nodes[path].children
            known = frozenset((path,)) if not children else frozenset().union(*map(self.leaves_below, children))
            self._below[path] = known
        return known

    def members(self, path: AllocationPath) -> tuple[str, ...]:
        """Who may submit: named by the nearest ancestor that names any; empty = open to everybody."""
        for above in reversed(self._nodes[path].lineage):
            if self._nodes[above].members:
                return self._nodes[above].members
        return ()

    def allows(self, user: str, path: AllocationPath) -> bool:
        """Whether ``user`` may submit to the leaf ``path``. The service asks; the core trusts what it is fed."""
        if path not in self._leaves:
            return False
        members = self.members(path)
        return not members or user in members

    def open_to(self, user: str) -> tuple[AllocationPath, ...]:
        """The leaves that ``user`` may submit to."""
        return tuple(path for path in self.leaves if self.allows(user, path))

    def nearest(self, path: AllocationPath) -> AllocationPath:
        """``path`` itself, or its nearest ancestor that still exists: where usage of a dropped node is counted."""
        while path not in self._nodes:
            path = parent_of(path)
        return path

    def diverge(self, one: AllocationPath, other: AllocationPath) -> tuple[AllocationPath, AllocationPath] | None:
        """The children of the lowest common ancestor of two leaves, on either side; None for the same leaf."""
        try:
            return self._diverge[one, other]
        except KeyError:
            lines = zip(self._nodes[one].lineage, self._nodes[other].lineage, strict=False)
            sides = self._diverge[one, other] = next((pair for pair in lines if pair[0] != pair[1]), None)
            return sides


def with_shares(allocations: Iterable[Allocation], shares: Mapping[AllocationPath, str]) -> tuple[Allocation, ...]:
    """The same tree with other shares. One that is not declared (its share is 1, implied) is declared."""
    known = tuple(allocations)
    declared = {one.path for one in known}
    changed = [replace(one, share=shares.get(one.path, one.share)) for one in known]
    return (*changed, *(Allocation(path, share) for path, share in shares.items() if path not in declared))


def parent_of(path: AllocationPath) -> AllocationPath:
    """The path one level up; the root is its own parent."""
    return AllocationPath(path.rpartition("/")[0])


def ancestors(path: AllocationPath) -> tuple[AllocationPath, ...]:
    """All proper ancestors of ``path``, the root first."""
    parts = path.split("/")
    return tuple(AllocationPath("/".join(parts[:depth])) for depth in range(len(parts)))


def _check_path(path: AllocationPath) -> None:
    if not path or any(not part or part != part.strip() for part in path.split("/")):
        raise BudgetError(f"allocation path {path!r} is not valid; write names joined by '/', like 'language/pretrain'")


def _share(allocation: Allocation) -> Fraction:
    try:
        share = Fraction(allocation.share)
    except (ValueError, ZeroDivisionError, TypeError) as err:
        raise BudgetError(f"share {allocation.share!r} of {allocation.path!r} is not a number") from err
    if share < 0:
        raise BudgetError(f"share {allocation.share} of {allocation.path!r} is negative; a share is a weight >= 0")
    return share
