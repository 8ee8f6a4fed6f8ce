"""`gpufair whatif`: from a service, or from files; what it says is what the simulator found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufair.core.snapshot import snapshot
from gpufair.core.units import HOUR, MINUTE
from gpufair.service.storage.store import NewEntry, Store, sqlite_url
from tests.unit.cli.conftest import Gpufair, Outcome, run
from tests.unit.client.fake_service import FakeService, Reply, problem
from tests.unit.sim.test_whatif import START, Recorded, batch, played

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def engine() -> Recorded:
    """Five hours in which both teams asked for more than there was."""
    return played(
        [
            batch(f"{leaf}{number:02d}", number * MINUTE, 3 * HOUR, 4, leaf, 3 * HOUR)
            for number in range(40)
            for leaf in "ab"
        ],
        5 * HOUR,
    )


@pytest.fixture
def handed(engine: Recorded) -> dict[str, Any]:
    now_s = (START + 5 * HOUR) / 1000
    return {
        "seq": len(engine.entries),
        "at_s": engine.state.now / 1000,
        "now_s": now_s,
        "version": "0.1.0",
        "state": snapshot(engine.state),
    }


@pytest.fixture
def live(gpufair: Gpufair, fake: FakeService, engine: Recorded, handed: dict[str, Any]) -> Gpufair:
    """A service with that state, which hands its timeline out in pages."""

    def timeline(asked: Any) -> Reply:
        after, since_s = int(asked.query["after"][0]), float(asked.query["since_s"][0])
        kinds = asked.query["kinds"][0].split(",")
        page = [one for one in engine.timeline if after < one["seq"] <= after + 300 and one["at_s"] >= since_s]
        last = min(after + 300, len(engine.entries))
        found = [one for one in page if one["kind"] in kinds]
        return Reply(body={"records": found, "last": last, "more": last < len(engine.entries)})

    fake.routes |= {"GET /api/v1/snapshot": Reply(body=handed), "GET /api/v1/timeline": timeline}
    return gpufair


def test_who_gains_and_who_loses(live: Gpufair) -> None:
    seen = live("whatif", "--budget", "a=3", "--hours", "24")
    assert seen.code == 0, seen.err
    assert "80 submissions of the past come again" in seen.out
    rows = {row.split()[0]: row for row in seen.out.splitlines() if row.split()[:1] in (["a"], ["b"])}
    assert rows["a"].rstrip().endswith("gains")
    assert rows["b"].rstrip().endswith("loses")
    assert "50.0 % → 75.0 %" in rows["a"]
    assert "Gain: a" in seen.out
    assert "Lose: b" in seen.out
    assert "Protected now: 4 workloads; 4 keep what they were granted." in seen.out


def test_the_same_twice_and_as_json(live: Gpufair) -> None:
    first, second = (live("whatif", "--budget", "a=3", "--hours", "6", "--from-live", "--json") for _ in range(2))
    assert first.out == second.out
    told = first.json
    assert (told["protected"], told["protections_kept"], told["protected_preemptions"]) == (4, 4, 0)
    assert [one["path"] for one in told["allocations"]] == ["a", "b"]
    a = told["allocations"][0]
    assert set(a["after"]) == {"entitlement", "gpus_held", "delivered_gpu_s", "unallocated_gpu_s", "wait_s", "waits",
                               "still_waiting", "preemptions", "metric"}  # fmt: skip
    assert a["after"]["gpus_held"] == pytest.approx(
        (a["after"]["delivered_gpu_s"] + a["after"]["unallocated_gpu_s"]) / (6 * HOUR_S), rel=1e-6
    )


def test_from_files(engine: Recorded, handed: dict[str, Any], live: Gpufair, tmp_path: Path) -> None:
    """A snapshot and the journal beside it say the same as the service; without a journal nobody submits anything."""
    store = Store(sqlite_url(tmp_path), "test")
    store.append([NewEntry(one.at_ms, one.event, one.actions, "") for one in engine.entries])
    store.close()
    (tmp_path / "s.json").write_text(json.dumps(handed))
    given = ("whatif", "--budget", "a=3", "--hours", "6", "--json")
    told = run(*given, "--snapshot", str(tmp_path / "s.json"), "--journal", str(tmp_path / "journal.sqlite"))
    assert told.code == 0, told.err
    assert told.json == live(*given).json
    alone = run(*given, "--snapshot", str(tmp_path / "s.json"))
    assert alone.json["arrivals"] == 0
    assert alone.json == live(*given, "--no-arrivals").json


def test_what_is_asked_for_is_tried(live: Gpufair, fake: FakeService) -> None:
    """The same as its shares."""
    fake.routes["GET /api/v1/budgets/requests/7"] = Reply(body={"id": 7, "state": "open", "shares": {"a": "3"}})
    assert live("whatif", "--request", "7", "--hours", "2", "--json").json == live(
        "whatif", "--budget", "a=3", "--hours", "2", "--json"
    ).json


def test_options_and_files_are_tried(live: Gpufair, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('[[allocation]]\npath = "a"\nshare = 9\n[[allocation]]\npath = "b"\n')
    for args in (
        ("--window", "1d"),
        ("--set", "take_limit=off", "--set", "banking=1"),
        ("--budgets", str(tmp_path / "b.toml")),
    ):
        seen = live("whatif", *args, "--hours", "2", "--json")
        assert seen.code == 0, seen.err
    assert seen.json["allocations"][0]["after"]["entitlement"] == 0.9


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], 2, "nothing is changed: give --budget PATH=SHARE"),
        (["--budget", "a"], 2, "'a' is no PATH=SHARE, like language/pretrain=40"),
        (["--budget", "A=3"], 1, "there is no allocation 'A'; known are a, b"),
        (["--budget", "a=-3"], 1, "is negative; a share is a weight >= 0, like 70"),
        (["--budget", "a=x"], 1, "is not a number; a share is a weight >= 0, like 70"),
        (["--set", "windw=3d"], 1, "there is no option \"windw\"; did you mean 'window'; write OPTION=VALUE"),
        (["--window", "3"], 1, 'did you mean "3s" or "3m"'),
        (["--set", "banking=2"], 1, "banking = 2 is out of range; allowed are 0 to 1"),
        (["--window", "1d", "--past", "x"], 2, "'x' is no duration"),
        (["--window", "1d", "--snapshot", "{tmp}/no"], 1, "`gpufair snapshot FILE` writes one"),
        (["--window", "1d", "--snapshot", "{tmp}/list"], 1, "holds no snapshot"),
        (["--window", "1d", "--snapshot", "{tmp}/odd"], 1, "use the version of gpufair that wrote it"),
        (["--window", "1d", "--snapshot", "{tmp}/odd", "--from-live"], 2, "give either --from-live or --snapshot"),
        (["--window", "1d", "--journal", "{tmp}/odd"], 2, "it goes with --snapshot"),
        (["--budgets", "{tmp}/none.toml"], 1, "cannot be read: No such file"),
        (["--window", "1d", "--hours", "9999"], 2, "less than or equal to 336"),
    ],
)
def test_bad_input_is_a_sentence(live: Gpufair, tmp_path: Path, args: list[str], code: int, said: str) -> None:
    (tmp_path / "list").write_text("[]")
    (tmp_path / "odd").write_text('{"seq": 1, "state": {"version": 1, "policy": 3}}')
    seen: Outcome = live("whatif", *(arg.format(tmp=tmp_path) for arg in args))
    assert seen.code == code
    assert said in seen.err.replace("\n", " ")
    assert "Traceback" not in seen.err


def test_who_is_no_owner_of_budgets_is_told(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes["GET /api/v1/snapshot"] = problem(
        403, "Forbidden", "only budget owners and operators may read the whole state"
    )
    seen = gpufair("whatif", "--window", "1d")
    assert seen.code == 1
    assert "only budget owners and operators" in seen.err
