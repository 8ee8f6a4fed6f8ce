"""What operators tell everybody: what the service answers, and how it is asked."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from urllib.parse import quote

from gpufair.client.calls import API, Call
from gpufair.client.insight import Plan
from gpufair.client.marks import one_of
from gpufair.client.reading import read


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an operator tells everybody, from ``from_s`` until ``until_s`` (null: until it is withdrawn).

    ``link``: where there is more to read; "" if nowhere.
    """

    id: int
    state: str = field(metadata=one_of("coming", "current", "over", "withdrawn"))
    severity: str = field(metadata=one_of("info", "warning", "critical"))
    text: str = ""
    link: str = ""
    from_s: float = 0.0
    until_s: float | None = None
    by: str = ""
    made_s: float = 0.0
    withdrawn_by: str = ""
    withdrawn_s: float | None = None


@dataclass(frozen=True, slots=True)
class Announcements:
    """What is to be seen now, or a page of all there were; and the maintenance that is planned, the first first."""

    announcements: tuple[Announcement, ...] = ()
    maintenance: tuple[Plan, ...] = ()
    more: bool = False


def announcements(every: bool = False, before: int = 0, limit: int = 100) -> Call[Announcements]:
    """What is to be seen now; with ``every`` all there were and are to come, the newest first, in pages (``before``)."""
    params = {"all": "true", "before": str(before), "limit": str(limit)} if every else {}
    return Call("GET", f"{API}/announcements", lambda data: read(Announcements, data), params)


def announce(
    text: str,
    severity: str = "info",
    link: str = "",
    from_s: float | None = None,
    until_s: float | None = None,
    key: str | None = None,
) -> Call[Announcement]:
    """Tell everybody something. ``key``: made up; asked again with the same one, nothing is told twice."""
    body = {"text": text, "severity": severity, "link": link, "from_s": from_s, "until_s": until_s}
    body = {name: value for name, value in body.items() if value not in (None, "")}
    body["key"] = uuid.uuid4().hex if key is None else key
    return Call("POST", f"{API}/announcements", lambda data: read(Announcement, data), json=body)


def withdraw_announcement(number: int) -> Call[Announcement]:
    """Take one back: nobody sees it any more."""
    path = f"{API}/announcements/{quote(str(number), safe='')}"
    return Call("DELETE", path, lambda data: read(Announcement, data), repeatable=False)
