"""Parts of a pod as people write them in a configuration, checked before a cluster would refuse each pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpufair.service.settings.tables import Table, hint, shown

_TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def tolerations(table: Table, key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of tolerations, as a pod has them.

    Raises: ConfigError: One is none.
    """
    given = table.raw(key, [])
    if not isinstance(given, list):
        table.fail(f'{key} has to be a list, like [{{ key = "dedicated", operator = "Exists" }}]', key)
    for at, one in enumerate(given, 1):
        if why := wrong_toleration(one):
            table.fail(f"{key}: number {at} {why}", key)
    return tuple(dict(one) for one in given)


def wrong_toleration(one: object) -> str:
    """Why it is no toleration; "": it is one."""
    if not isinstance(one, dict):
        return "has to be a table"
    for name, value in one.items():
        if name not in _TOLERATION:
            return f"has an unknown field {name!r}{hint(name, _TOLERATION)}; known are {', '.join(_TOLERATION)}"
        if name == "tolerationSeconds":
            if type(value) is not int:
                return "has tolerationSeconds that are no integer"
        elif not isinstance(value, str):
            return f"has a {name} that is no string"
    if one.get("operator", "Equal") not in {"Equal", "Exists"}:
        return f"has operator {shown(one['operator'])}; it is Equal or Exists"
    if one.get("effect", "") not in {"", *EFFECTS}:
        return f"has effect {shown(one['effect'])}; it is one of {', '.join(EFFECTS)}"
    if not one.get("key") and one.get("operator") != "Exists":
        return 'names no key; add one, or operator = "Exists" for every taint'
    if one.get("operator") == "Exists" and one.get("value"):
        return 'has a value, which operator = "Exists" does not look at; leave one of them out'
    return ""
