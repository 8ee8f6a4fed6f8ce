"""What operators tell everybody: by whom, when it is seen, what survives, and who hears of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpufair.client.announcing import Announcement, Announcements
from gpufair.client.reading import read
from gpufair.clock import VirtualClock
from gpufair.core.units import SECOND, Instant, Millis, after
from gpufair.service.runtime.broadcast import Broadcast, Change
from gpufair.service.storage.announcements import MOST_LIVE, Board
from gpufair.service.storage.announcements import Announcement as Row
from tests.unit.service.rig import START, bearer, quiet, runtime_at, service_at

ROUTE = "/api/v1/announcements"
NOW_S = START / 1000


def row(**fields: Any) -> Row:
    values: dict[str, Any] = {"text": "x", "severity": "info", "link": "", "by": "olga", "from_ms": START}
    return Row(id=0, made_ms=START, **values | fields)


async def test_operators_announce_and_all_read(tmp_path: Path) -> None:
    """With severity, time and link; listed with the maintenance that is planned; audited; withdrawn."""
    async with service_at(tmp_path) as (it, client):
        ada, abe = bearer(it.secrets.user_token("ada")), bearer(it.secrets.user_token("abe"))
        wanted = {"text": "The storage is slow.", "severity": "warning", "link": "https://x.org/a?b=1"}
        assert (await client.post(ROUTE, json=wanted, headers=ada)).status_code == 403
        assert (await client.post(ROUTE, json=wanted, headers=abe)).status_code == 403
        made = read(Announcement, (await client.post(ROUTE, json=wanted | {"key": "k"})).json())
        assert (made.id, made.state, made.from_s, made.until_s) == (1, "current", NOW_S, None)
        again = read(Announcement, (await client.post(ROUTE, json=wanted | {"key": "k"})).json())
        assert again == made
        later = {"text": "Soon", "from_s": NOW_S + 60, "until_s": NOW_S + 120}
        assert (await client.post(ROUTE, json=later)).json()["state"] == "coming"
        await client.post("/api/v1/maintenance", json={"nodes": ["n1"], "at_s": NOW_S + 1800, "id": "disks"})
        seen = read(Announcements, (await client.get(ROUTE, headers=ada)).json())
        assert ([one.id for one in seen.announcements], [plan.id for plan in seen.maintenance]) == ([1], ["disks"])
        assert (await client.delete(f"{ROUTE}/1", headers=ada)).status_code == 403
        gone = read(Announcement, (await client.delete(f"{ROUTE}/1")).json())
        assert (gone.state, gone.withdrawn_s) == ("withdrawn", NOW_S)
        assert (await client.get(ROUTE)).json()["announcements"] == []
        for missing in (1, 7):
            assert (await client.delete(f"{ROUTE}/{missing}")).json()["error"] == "UnknownAnnouncement"
        every = read(Announcements, (await client.get(ROUTE, params={"all": "true", "limit": 1})).json())
        assert ([(one.id, one.state) for one in every.announcements], every.more) == ([(2, "coming")], True)
        rest = read(Announcements, (await client.get(ROUTE, params={"all": "true", "before": 2})).json())
        assert ([(one.id, one.state) for one in rest.announcements], rest.more) == ([(1, "withdrawn")], False)
        lines = (await client.get("/api/v1/audit")).json()["changes"]
        asked = [line["request"] for line in lines if "announcements" in line["request"]]
        assert asked == [f"DELETE {ROUTE}/1", f"POST {ROUTE}", f"POST {ROUTE}"]


@pytest.mark.parametrize(
    "bad",
    [
        {"text": ""},
        {"text": "x" * 1001},
        {"text": "a\x1b[2J"},
        {"severity": "loud"},
        {"link": "javascript:alert(1)"},
        {"link": "https://x.org/a b"},
        {"link": f"https://{'x' * 500}"},
        {"until_s": "noon"},
        {"from_s": -1},
        {"html": "<b>"},
    ],
    ids=lambda bad: "-".join(f"{key}" for key in bad),
)
async def test_what_nobody_should_be_shown_is_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    """Long texts, control characters, links that are code."""
    async with service_at(tmp_path) as (_, client):
        assert (await client.post(ROUTE, json={"text": "x"} | bad)).status_code == 422
        over = await client.post(ROUTE, json={"text": "x", "from_s": NOW_S + 60, "until_s": NOW_S + 60})
        assert (over.status_code, over.json()["error"]) == (400, "BadRequest")
        assert (await client.get(ROUTE, params={"all": "true"})).json()["announcements"] == []


async def test_they_come_and_go_at_their_times_and_subscribers_hear(tmp_path: Path) -> None:
    """Without anybody's doing anything; a restart in between changes nothing, and a number is never used twice."""
    clock = VirtualClock(START)
    begin, end = after(START, Millis(10 * SECOND)), after(START, Millis(20 * SECOND))
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await runtime.do(lambda turn: turn.board.post(row(from_ms=begin, until_ms=end), turn.now))
        await runtime.do(lambda turn: turn.board.post(row(text="gone"), turn.now))
        await runtime.do(lambda turn: turn.board.withdraw(2, "olga", turn.now))
    async with runtime_at(tmp_path, clock) as (runtime, _):
        line = runtime.broadcast.subscribe("ada")
        assert (await runtime.noticed())["announcements"] == []
        for at, expected in ((begin, ["x"]), (end, [])):
            await clock.advance(Millis(at - clock.now()))
            told = await asyncio.wait_for(line.get(), 30)
            assert told is not None
            assert told.kind == "announcements"
            assert [one["text"] for one in told.view["announcements"]] == expected
        await quiet(runtime)
        made = await runtime.do(lambda turn: turn.board.post(row(), turn.now))
        assert made.id == 3


def test_the_most_severe_is_first() -> None:
    """Then the newest."""
    board = Board()
    for severity in ("info", "critical", "warning", "critical"):
        board.post(row(severity=severity), START)
    assert [one.id for one in board.current(START)] == [4, 2, 3, 1]


def test_there_are_no_more_than_anybody_reads() -> None:
    """Those that are over make room."""
    board = Board()
    for _ in range(MOST_LIVE):
        board.post(row(until_ms=START + 1000), START)
    with pytest.raises(Exception, match=f"{MOST_LIVE} announcements") as refused:
        board.post(row(), START)
    assert type(refused.value).__name__ == "TooManyAnnouncements"
    assert board.post(row(), Instant(START + 1000)).id == MOST_LIVE + 1


async def test_who_was_away_is_told_what_is_to_be_seen() -> None:
    """An announcement reaches those who listen to one user's changes, at once or when they are back."""
    broadcast = Broadcast()
    line = broadcast.subscribe("ada")
    broadcast.unsubscribe(line)
    broadcast.announce({"announcements": [], "maintenance": []})
    again = broadcast.resume(line.since, "ada")
    assert again is not None
    told = await asyncio.wait_for(again.get(), 30)
    assert isinstance(told, Change)
    assert told.kind == "announcements"
