"""A kernel on another machine than the service's: its `%%cpu` cells run on workers of its own, and say so and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.cpu import connection, served
from gpufair.cpu.errors import PoolMissing
from gpufair.node.environment import workload_environment


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that an agent of another machine gives."""
    given = workload_environment({}, node="gpu-07", workload="w", incarnation=1, devices=(), tag="t", remote=True, base={})
    for name in ("GPUFAIR_URL", "GPUFAIR_CPU_POOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))


@pytest.mark.usefixtures("far")
def test_the_pool_of_another_machine_is_out_of_reach_and_the_cell_says_so() -> None:
    with pytest.raises(PoolMissing, match=r"this kernel is on gpu-07; .* ask the operator to set \$GPUFAIR_CPU_POOL"):
        served.ask()
    with pytest.warns(UserWarning, match="workers of this notebook's own are used.*this kernel is on gpu-07"):
        assert connection._of_the_service(1, (), 1.0) is None


@pytest.mark.usefixtures("far")
def test_on_the_services_machine_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a service a notebook has workers of its own, as ever."""
    monkeypatch.delenv("GPUFAIR_REMOTE")
    assert served.ask() is None
