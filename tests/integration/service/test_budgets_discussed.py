"""A budget from the request to its end, as people do it: with the commands, by tokens of their own, and kill -9 in between."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.integration.service.rig import CONFIG, Rig, until

PEOPLE = 'users = ["ria", "ben"]\nbudget_owners = {{ uma = ["*"], una = ["c"] }}\n'
BUDGETS = "".join(f'[[allocation]]\npath = "{path}"\n' for path in ("a", "b", "c/x", "c/y"))
LATER_S = 4.0


def test_a_change_that_was_decided_comes_into_force_once_whoever_was_killed(tmp_path: Path) -> None:
    """kill -9 right after the decision, so its time comes while nobody is there; and again right after it came into force."""
    rig = Rig(tmp_path, PEOPLE + CONFIG)
    (tmp_path / "budgets.toml").write_text(BUDGETS)

    def gpufair(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        info = json.loads((rig.state / "service.json").read_text())
        token = (rig.state / "tokens" / f"{user}.token").read_text().strip()
        env = os.environ | {"GPUFAIR_URL": info["url"], "GPUFAIR_TOKEN": token}
        command = [sys.executable, "-m", "gpufair.cli", "budgets", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    def told(user: str, *words: str) -> Any:
        done = gpufair(user, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def share(path: str) -> str:
        return str(next(one["share"] for one in rig.ask("GET", "/budgets")["allocations"] if one["path"] == path))

    try:
        rig.start()
        assert told("ria", "request", "a=3", "--why", "a deadline")["state"] == "open"
        assert told("ria", "request", "c/x=3", "--why", "the same")["id"] == 2
        refused = gpufair("una", "accept", "1")
        assert (refused.returncode, "decided by who owns the whole tree" in refused.stderr) == (1, True)
        assert told("una", "accept", "2")["state"] == "in_force"
        begin_s = round(time.time() + LATER_S, 3)
        body = {
            "words": "until Friday",
            "from_s": begin_s,
            "until_s": begin_s + 3600,
            "preview": {"allocations": []},
        }
        headers = {"Authorization": f"Bearer {(rig.state / 'tokens' / 'uma.token').read_text().strip()}"}
        assert rig.http is not None
        answer = rig.http.post("/budgets/requests/1/accept", json=body, headers=headers)
        assert answer.json()["state"] == "accepted", answer.text
        rig.kill()
        time.sleep(max(0.0, begin_s + 0.5 - time.time()))
        rig.start()
        one = rig.ask("GET", "/budgets/requests/1")
        assert (one["in_force_s"], one["preview"]["by"], share("a")) == (begin_s, "uma", "3")
        rig.kill()
        rig.start()
        soon_s = round(time.time() + 1.5, 3)
        planned = rig.ask("POST", "/budgets/changes", json={"shares": {"b": 2}, "why": "as agreed", "from_s": soon_s})
        assert planned["state"] == "accepted"
        until("its time", lambda: rig.ask("GET", "/budgets/requests/3")["state"] == "in_force")
        assert (share("a"), share("b")) == ("3", "2")
        changes = told("ben", "history")["changes"]
        assert [(one["by"], one["request"]) for one in changes] == [
            (rig.ask("GET", "/status")["user"], 3),
            ("uma", 1),
            ("una", 2),
            ("gpufair.toml", None),
        ]
        assert [changes[1]["at_s"], changes[0]["at_s"]] == [begin_s, soon_s]
        with closing(sqlite3.connect(rig.state / "journal.sqlite")) as journal:
            applied = journal.execute("select count(*) from journal where event like '%BudgetsApplied%'").fetchone()
        assert applied == (4,), "each of the changes once, whatever was killed and replayed"
    finally:
        rig.clean()
