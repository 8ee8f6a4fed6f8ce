"""An embedded service stays for whoever comes back, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpufair.clock import VirtualClock
from gpufair.core.units import MINUTE, SECOND, Millis
from gpufair.service.identity.secrets import SecretError, Secrets
from gpufair.service.lifecycle.lifetime import Lifetime
from tests.unit.service.rig import START


async def over_after(clock: VirtualClock, lifetime: Lifetime, span: int) -> bool:
    """Whether it is over once ``span`` has passed."""
    waiting = asyncio.create_task(lifetime.wait_over())
    await asyncio.sleep(0.01)
    await clock.advance(Millis(span))
    await asyncio.sleep(0.01)
    done = waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return done


async def idle() -> bool:
    return False


async def test_it_lingers_after_the_last_holder_and_a_new_one_cancels_that() -> None:
    """15 minutes from the moment the last Jupyter server went, whatever happened before."""
    clock = VirtualClock(START)
    lifetime = Lifetime(clock, Millis(15 * MINUTE), idle)
    async with lifetime.hold():
        assert lifetime.until is None
        async with lifetime.hold():
            assert lifetime.holders == 2
        assert not await over_after(clock, lifetime, 60 * MINUTE)
    assert lifetime.until == clock.now() + 15 * MINUTE
    assert not await over_after(clock, lifetime, 14 * MINUTE)
    async with lifetime.hold():
        assert not await over_after(clock, lifetime, 5 * MINUTE)
    assert not await over_after(clock, lifetime, 14 * MINUTE)
    assert await over_after(clock, lifetime, 1 * MINUTE)


async def test_a_first_holder_gets_a_minute_at_least() -> None:
    """A short linger must not end the service before its starter has connected."""
    clock = VirtualClock(START)
    lifetime = Lifetime(clock, Millis(1 * SECOND), idle)
    assert not await over_after(clock, lifetime, 59 * SECOND)
    assert await over_after(clock, lifetime, 1 * SECOND)


async def test_until_idle_waits_for_the_last_busy_session() -> None:
    """Without a time limit it ends as soon as nothing is busy."""
    clock = VirtualClock(START)
    work = [True]

    async def busy() -> bool:
        return work[0]

    lifetime = Lifetime(clock, None, busy)
    async with lifetime.hold():
        pass
    for _ in range(3):
        assert not await over_after(clock, lifetime, 10 * MINUTE)
    work[0] = False
    assert await over_after(clock, lifetime, 1 * MINUTE)


def test_the_secret_is_made_once_and_kept_private(tmp_path: Path) -> None:
    """Keys and tokens are the same after a restart; a secret that others can read is refused, as is a damaged one."""
    first = Secrets.load(tmp_path / "state")
    again = Secrets.load(tmp_path / "state")
    assert first.kernel_key("w") == again.kernel_key("w")
    kinds = {first.kernel_key("x"), first.checkpoint_key("x"), first.user_token("x"), first.agent_token("x")}
    assert len(kinds | {first.operator_token()}) == 5
    assert Secrets.load(tmp_path / "other").operator_token() != first.operator_token()
    assert "secret" not in repr(first).lower().replace("secrets", "")
    path = tmp_path / "state" / "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    with pytest.raises(SecretError, match="chmod 600"):
        Secrets.load(tmp_path / "state")
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(SecretError, match="5 bytes instead of 32"):
        Secrets.load(tmp_path / "state")
