"""What was to be told is told, whoever was down or killed meanwhile."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from gpufair.service.delivery.senders import signature
from tests.integration.service.rig import CONFIG, Rig, until
from tests.unit.service.test_senders import receiver

TOLD = """
[notifications.webhook]
url = "http://127.0.0.1:{port}/hook"
secret_file = "hook.secret"
"""


def test_killed_before_anybody_could_be_told(tmp_path: Path) -> None:
    """The receiver is down, the service is killed, and when both are back each notice arrives, signed and in order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (tmp_path / "hook.secret").write_text("s3cret")
    rig = Rig(tmp_path, CONFIG + TOLD.replace("{port}", str(port)))
    try:
        rig.start()
        command = [sys.executable, "-m", "gpufair.cli", "submit", "--state-dir", str(rig.state), "--allocation", "a"]
        subprocess.run([*command, "--name", "train", "--notify", "start,end", "--", "true"], check=True, cwd=tmp_path, timeout=60)
        wrong = subprocess.run([*command, "--notify", "ended", "--", "true"], capture_output=True, text=True, timeout=60, check=False)
        assert wrong.returncode != 0
        assert "there are start, preempted" in wrong.stderr
        [workload] = rig.ask("GET", "/workloads")["workloads"]
        rig.await_state(workload["id"], "ended")
        until("a try in vain", lambda: "did not take a notice: ConnectError" in rig.log())
        rig.kill()
        with receiver(port) as server:
            rig.start()
            until("both notices", lambda: len({headers["X-Gpufair-Id"] for headers, _ in server.got}) == 2, 60)
            got = list(server.got)
            for headers, body in got:
                sent_s = int(headers["X-Gpufair-Signature"].split(",")[0].removeprefix("t="))
                assert headers["X-Gpufair-Signature"] == signature("s3cret", sent_s, body)
            notices = {notice["id"]: notice for _, body in got for notice in [json.loads(body)]}
            assert sorted(one["kind"] for one in notices.values()) == ["end", "start"]
            assert {one["workload"] for one in notices.values()} == {workload["id"]}
            assert "s3cret" not in rig.log()
            with closing(sqlite3.connect(rig.state / "journal.sqlite")) as journal:
                until("nothing to be left", lambda: journal.execute("select count(*) from outbox").fetchone() == (0,))
    finally:
        rig.clean()
