"""The budgets file: who owns which share of the GPUs.

```toml
users = ["ada", "bo"]            # optional: members have to be among them

[[allocation]]
path = "language/pretrain"       # parents are implied, with share 1
share = 70                       # a weight among its siblings
members = ["ada"]                # optional: only they may submit here
```
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NoReturn

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath
from gpufair.service.settings.tables import NAME, hint, shown
from gpufair.service.settings.toml_source import TomlSource, TomlSyntaxError

MAX_BUDGETS_BYTES = 1 << 20
MAX_ALLOCATIONS = 10_000
MAX_DEPTH = 16
WHOLE_TREE: Final = ""  # the path of the root
MAX_SHARE = Decimal(10) ** 12
MAX_SHARE_DIGITS = 12  # behind the point
_KEYS = ("path", "share", "members")


class BudgetFileError(BudgetError):
    """A budgets file is not valid: like ``BudgetError``, and names the file."""

    def __init__(self, message: str, line: int | None, file: str) -> None:
        super().__init__(message, line)
        self.file = file

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line is not None else self.file
        return f"{where}: {self.args[0]}"


@dataclass(frozen=True, slots=True)
class Budgets:
    """A checked budget tree. ``users`` empty: the file names none."""

    allocations: tuple[Allocation, ...]
    users: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[str, ...]:
        """The paths that workloads can be charged to."""
        return Tree(self.allocations).leaves


def read_budgets(path: Path, users: Iterable[str] = ()) -> Budgets:
    """The budgets in the file ``path``.

    Raises:
        BudgetFileError: It can't be read or is not valid.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BUDGETS_BYTES + 1)
    except OSError as err:
        raise BudgetFileError(f"cannot be read: {err.strerror or err}", None, str(path)) from err
    return parse_budgets(data, users, str(path))


def parse_budgets(data: bytes, users: Iterable[str] = (), file: str = "budgets") -> Budgets:
    """The budgets in ``data``, a TOML document.

    Args:
        data: At most ``MAX_BUDGETS_BYTES``.
        users: Whom a member has to be among, unless the document has a list of its own; empty = anybody.
        file: What errors call it.

    Raises:
        BudgetFileError: It is not valid; ``line`` is where.
    """
    if len(data) > MAX_BUDGETS_BYTES:
        raise BudgetFileError(
            f"is larger than {MAX_BUDGETS_BYTES:,} bytes; split the tree or drop comments", None, file
        )
    try:
        source = TomlSource(data.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as err:
        raise BudgetFileError("is not UTF-8 text", data[: err.start].count(b"\n") + 1, file) from err
    except TomlSyntaxError as err:
        raise BudgetFileError(f"is not valid TOML: {err}", err.line, file) from err
    return _Reader(source, tuple(users), file).read()


def budgets_from_json(data: object, users: Iterable[str] = ()) -> Budgets:
    """The same from JSON: ``{"users"?: [...], "allocation": [{"path", "share"?, "members"?}]}``.

    Raises:
        BudgetError: It is not valid. There are no lines in JSON; the message names the entry.
    """
    if not isinstance(data, dict):
        raise BudgetError(f"expected an object with a list 'allocation', got {type(data).__name__}")
    entries = data.get("allocation", data.get("allocations"))
    known = {"users": data.get("users", []), "allocation": entries}
    extra = {key: value for key, value in data.items() if key not in ("users", "allocation", "allocations")}
    try:
        return _Reader(_NoLines(known | extra), tuple(users), "budgets").read()
    except BudgetFileError as err:
        raise BudgetError(str(err.args[0])) from err


def share_of(share: object, path: str) -> str:
    """A share as an exact decimal string. A TOML float is read as it was written, not as its binary neighbour.

    Raises:
        BudgetError: It is no weight; ``path`` is whose it would be.
    """
    number: Decimal | None = None
    if not isinstance(share, bool) and isinstance(share, int | float | str) and len(str(share)) <= 64:
        try:
            number = Decimal(str(share))
        except InvalidOperation:
            number = None
    if number is None or not number.is_finite():
        raise BudgetError(f"share = {shown(share)} of {path!r} is not a number; a share is a weight >= 0, like 70")
    if number < 0:
        raise BudgetError(f"share = {share} of {path!r} is negative; a share is a weight >= 0, like 70")
    exponent = number.normalize().as_tuple().exponent
    if number > MAX_SHARE or (isinstance(exponent, int) and exponent < -MAX_SHARE_DIGITS):
        raise BudgetError(
            f"share = {share} of {path!r} is out of range; allowed are 0 to {MAX_SHARE:g} "
            f"with at most {MAX_SHARE_DIGITS} decimals"
        )
    return f"{number:f}"


def refuse_starved(tree: Tree) -> None:
    """Refuse a tree in which siblings have no share at all.

    Raises:
        BudgetError: There are some.
    """
    for _, problem in _starved(tree):
        raise BudgetError(problem)


def _starved(tree: Tree) -> Iterator[tuple[tuple[AllocationPath, ...], str]]:
    """Siblings whose shares are all 0, and what is wrong with that."""
    for node in tree.nodes():
        if node.children and sum((tree[child].share for child in node.children), Fraction(0)) == 0:
            below = f"below {node.path!r}" if node.path else "at the top"
            some = _some(node.children)
            yield node.children, f"all shares {below} are 0 ({some}); give at least one of them a share above 0"


class _NoLines(TomlSource):
    """A document that came without text."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self._lines = {}


class _Reader:
    """Checks one document."""

    def __init__(self, source: TomlSource, users: tuple[str, ...], file: str) -> None:
        self._source, self._users, self._file = source, users, file

    def read(self) -> Budgets:
        """The budgets. Errors come in the order of the file."""
        data = self._source.data
        for key in data:
            if key not in ("users", "allocation"):
                self._fail(
                    f"unknown key {key!r}{hint(key, ('users', 'allocation'))}; known are users, [[allocation]]", key
                )
        own = data.get("users", [])
        if not isinstance(own, list) or not all(isinstance(user, str) and NAME.fullmatch(user) for user in own):
            self._fail(f'users = {shown(own)}: expected a list of user names, like ["ada", "bo"]', "users")
        users = tuple(own) or self._users
        entries = data.get("allocation")
        if not isinstance(entries, list) or not entries:
            self._fail('there is no [[allocation]]; write at least one, with path = "team"', "allocation")
        if len(entries) > MAX_ALLOCATIONS:
            self._fail(f"{len(entries)} allocations; at most {MAX_ALLOCATIONS} are allowed", "allocation")
        lines: dict[str, int] = {}
        allocations = [self._allocation(at, entry, users, lines) for at, entry in enumerate(entries)]
        self._refuse_empty_families(allocations, lines)
        return Budgets(tuple(allocations), tuple(own))

    def _allocation(self, at: int, entry: object, users: tuple[str, ...], lines: dict[str, int]) -> Allocation:
        if not isinstance(entry, dict):
            self._fail("an allocation has to be a table, written as [[allocation]]", "allocation", at)
        for key in entry:
            if key not in _KEYS:
                self._fail(
                    f"unknown key {key!r}{hint(key, _KEYS)}; known are {', '.join(_KEYS)}", "allocation", at, key
                )
        path = self._path(at, entry)
        if path in lines:
            self._fail(
                f"allocation {path!r} is already declared on line {lines[path]}; keep one of the two",
                "allocation",
                at,
                "path",
            )
        lines[path] = self._source.line(("allocation", at, "path"))
        share = self._share(at, entry.get("share", 1), path)
        members = entry.get("members", [])
        if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
            self._fail(
                f'members = {shown(members)} of {path!r}: expected a list of user names, like ["ada"]',
                "allocation",
                at,
                "members",
            )
        for member in members:
            if NAME.fullmatch(member) is None:
                self._fail(f"member {shown(member)} of {path!r} is no user name", "allocation", at, "members")
            if users and member not in users:
                self._fail(
                    f"member {member!r} of {path!r} is not a known user{hint(member, users)}; "
                    f"add them to users or correct the name. Known are {_some(users)}",
                    "allocation",
                    at,
                    "members",
                )
        if len(set(members)) != len(members):
            self._fail(f"members of {path!r} names somebody twice", "allocation", at, "members")
        return Allocation(AllocationPath(path), share, tuple(members))

    def _path(self, at: int, entry: dict[str, Any]) -> str:
        path = entry.get("path")
        if path is None:
            self._fail('this allocation has no path; add one, like path = "language/pretrain"', "allocation", at)
        if not isinstance(path, str):
            self._fail(f'path = {shown(path)}: expected a string, like "language/pretrain"', "allocation", at, "path")
        parts = path.split("/")
        if len(parts) > MAX_DEPTH:
            self._fail(
                f"path {shown(path)} has {len(parts)} levels; at most {MAX_DEPTH} are allowed", "allocation", at, "path"
            )
        if any(not part.strip() for part in parts):
            self._fail(
                f"path {shown(path)} has an empty segment; write names joined by single '/'", "allocation", at, "path"
            )
        for part in parts:
            if NAME.fullmatch(part) is None:
                self._fail(
                    f"path {shown(path)}: {shown(part)} is no name (letters, digits, '.', '_', '-')",
                    "allocation",
                    at,
                    "path",
                )
        return path

    def _share(self, at: int, share: object, path: str) -> str:
        try:
            return share_of(share, path)
        except BudgetError as err:
            self._fail(str(err.args[0]), "allocation", at, "share")

    def _refuse_empty_families(self, allocations: list[Allocation], lines: dict[str, int]) -> None:
        """Siblings whose shares are all 0 would make everything below them 0/0."""
        declared = {allocation.path for allocation in allocations}
        for children, problem in _starved(Tree(allocations)):
            last = max(lines[child] for child in children if child in declared)
            raise BudgetFileError(problem, last, self._file)

    def _fail(self, message: str, *path: str | int) -> NoReturn:
        raise BudgetFileError(message, self._source.line(path), self._file)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:8]) + (", …" if len(every) > 8 else "")
