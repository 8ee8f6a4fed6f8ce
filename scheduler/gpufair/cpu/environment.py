"""Whether what a worker has installed fits what the notebook has."""

from __future__ import annotations

_REFUSED = ("Python", "dask", "distributed")  # bytecode, and a protocol that promises nothing across releases


def compare(here: dict[str, str], there: dict[str, str]) -> tuple[list[str], list[str]]:
    """Differences that forbid working together, and those worth a warning.

    Versions of what only one side has installed are no difference: it can travel only by a name that then is missing,
    and the error says so. A difference in the last place of a version is none either.
    """
    refused, told = list[str](), list[str]()
    for name in sorted(here.keys() & there.keys()):
        if _minor(here[name]) != _minor(there[name]):
            line = f"{name} is {here[name]} in this notebook and {there[name]} on a worker"
            (refused if name in _REFUSED else told).append(line)
    return refused, told


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
