"""The main job from the browser's side, with the real service, agents, supervisors and kernels."""

from __future__ import annotations

from pathlib import Path

from tests.integration.jupyter.real import real_service
from tests.integration.jupyter.server import Tab


def test_parked_and_back_with_everything(tmp_path: Path) -> None:
    with real_service(tmp_path) as (server, client):
        kernel = server.new()
        with Tab(server, kernel) as tab:
            first = tab.run("import os\nx = [1, 2]\nprint(os.environ['GPUFAIR_NODE'])")
            assert tab.reply(first)["execution_count"] == 1
            assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
            server.wait_for(kernel, "parked")
            second = tab.run("x.append(3); print(x, os.environ['GPUFAIR_NODE'])")
            reply = tab.reply(second)
            assert (reply["status"], reply["execution_count"]) == ("ok", 2)
            print(tab.text(first), tab.text(second), client.workload(kernel))
