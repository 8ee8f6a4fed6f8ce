"""What Python tells whoever asks about the core and the simulator, as JSON: ``python -m tests.told``.

By dotted names: docstrings and parameters of all that is public, and of classes annotations, fields and home. Under
``derived`` the classes, of all packages, that are not compiled and have a compiled base.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NewType, get_type_hints

import gpufair.core
import gpufair.sim
import jupyter_gpufair

APART = {"__main__", "migrations", "jupyter_scheduler"}  # cannot be imported by whoever likes to
MARK = "__mypyc_attrs__"  # of a compiled class


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """All of a package."""
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not APART & set(one.name.split(".")):
            yield import_module(one.name)


def told(one: Any) -> dict[str, Any]:
    """Of a class, a function or a method."""
    about: dict[str, Any] = {"doc": inspect.getdoc(one), "takes": [], "defaults": []}
    try:
        parameters = list(inspect.signature(one).parameters.values())
    except (TypeError, ValueError):  # it is no function, or says nothing of itself
        parameters = []
    for each in parameters if not hasattr(one, "register") else ():  # one that dispatches is an object of its own class
        if each.name != "self":  # by position only, if compiled
            about["takes"].append((each.name, each.kind.name, each.default is not each.empty))
        if each.default is not each.empty:
            about["defaults"].append(re.sub(r" at 0x\w+", "", repr(each.default)))
    if inspect.isclass(one):
        about["annotations"] = {name: str(hint) for name, hint in get_type_hints(one).items()}
        fields = dataclasses.fields(one) if dataclasses.is_dataclass(one) else ()
        about["fields"] = [(each.name, each.type) for each in fields]
    return about


def everything() -> dict[str, Any]:
    """Of the core and the simulator."""
    found: dict[str, Any] = {}
    for module in (*modules(gpufair.core), *modules(gpufair.sim)):
        found[module.__name__] = module.__doc__
        for name, one in vars(module).items():
            here = f"{module.__name__}.{name}"
            if name.startswith("_") or getattr(one, "__module__", None) != module.__name__:
                continue
            if isinstance(one, NewType):
                found[here] = str(one)
            elif inspect.isclass(one):
                found[here] = told(one)
                for inner in [inner for inner in vars(one) if not inner.startswith("_")]:
                    method = inspect.getattr_static(one, inner)
                    if isinstance(method, property) or inspect.isgetsetdescriptor(method):
                        found[f"{here}.{inner}"] = method.__doc__
                    elif inspect.isroutine(getattr(one, inner)):
                        found[f"{here}.{inner}"] = told(getattr(one, inner))
            elif inspect.isroutine(one):
                found[here] = told(one)
    return found


def derived() -> list[str]:
    """Classes of ours that no compiled code would take for what they are derived from."""
    return [
        f"{module.__name__}.{name}"
        for package in (gpufair, jupyter_gpufair)
        for module in modules(package)
        for name, one in vars(module).items()
        if inspect.isclass(one) and one.__module__ == module.__name__ and MARK not in vars(one)
        if any(MARK in vars(base) for base in one.__mro__[1:])
    ]


if __name__ == "__main__":
    print(json.dumps({"derived": derived(), "told": everything()}))
