"""An agent obeys the newest leader that has spoken, and no older one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.node import agent as agents
from gpufair.node.agent import Agent
from gpufair.node.agent_config import AgentConfig
from gpufair.node.files import write_json
from gpufair.node.service_calls import OldLeader
from gpufair.wire import NodeInventory


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    config = AgentConfig(NodeInventory("n1", ()), tmp_path, "token", None)
    folder = tmp_path / "nodes" / "n1"
    folder.mkdir(parents=True)
    return Agent(config, folder)


def test_an_older_leader_is_not_obeyed(agent: Agent) -> None:
    """It was stopped, and woke up with commands that it had decided before."""
    for epoch in (0, 3, 3, 4):
        assert agent._obeyed({"commands": [], "epoch": epoch})["epoch"] == epoch
    for answer in ({"epoch": 3}, {}):
        with pytest.raises(OldLeader, match="of epoch 4 has spoken"):
            agent._obeyed(answer)


async def test_a_newer_leader_is_looked_for(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped one keeps its connections open and says nothing on them."""
    monkeypatch.setattr(agents, "LEADER_CHECK_S", 0.01)
    agent._obeyed({"epoch": 4})
    write_json(tmp_path / "service.json", {"url": "http://127.0.0.1:1", "epoch": 5})
    with pytest.raises(OldLeader):
        await agent._look_for_a_newer()
