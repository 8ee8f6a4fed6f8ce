"""Takes letters out of the outbox and sends them, each channel by itself: a mail server that is down holds up no webhook."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from gpufair.clock import Clock
from gpufair.core.errors import GpufairError
from gpufair.core.units import Instant, Millis, after
from gpufair.service.delivery.senders import Sender
from gpufair.service.storage import outbox
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.outbox import Letter
from gpufair.service.storage.store import StoreError, StoreUnavailable

AT_ONCE = 4
AGAIN = Millis(5_000)  # where the outbox cannot be read

_log = logging.getLogger(__name__)


class Courier:
    """One channel's. ``start`` once the runtime has started."""

    def __init__(self, journal: Journal, clock: Clock, sender: Sender) -> None:
        self._journal, self._clock, self._sender = journal, clock, sender
        self._posted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with what an earlier service has left."""
        self._task = asyncio.create_task(self._run(), name=f"courier-{self._sender.channel}")

    def wake(self) -> None:
        """Something was posted."""
        self._posted.set()

    async def close(self) -> None:
        """End; what was not sent stays for the next service."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._sender.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except (StoreUnavailable, StoreError) as err:
                _log.warning("notices wait, the outbox cannot be used: %s", err)
                await self._clock.sleep_until(after(self._clock.now(), AGAIN))

    async def _round(self) -> None:
        self._posted.clear()
        channel = self._sender.channel
        letters = await self._journal.within(partial(outbox.due, channel=channel, now_ms=self._clock.now(), limit=AT_ONCE))
        if letters:
            await asyncio.gather(*(self._deliver(letter) for letter in letters))
            return
        due = await self._journal.within(partial(outbox.next_due, channel=channel))
        waits: list[asyncio.Task[bool]] = [asyncio.create_task(self._news())]
        if due is not None:
            waits.append(asyncio.create_task(self._until(due)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _news(self) -> bool:
        return await self._posted.wait()

    async def _until(self, due_ms: int) -> bool:
        await self._clock.sleep_until(Instant(due_ms))
        return True

    async def _deliver(self, letter: Letter) -> None:
        now = self._clock.now()
        try:
            await self._sender.send(letter.notice, now / 1000)
        except GpufairError as err:
            problem = str(err)
        except Exception as err:  # noqa: BLE001 - one notice that cannot be sent must not hold up the others
            problem = f"a notice could not be sent ({type(err).__name__})"
        else:
            await self._journal.within(partial(outbox.sent, letter=letter))
            return
        again = await self._journal.within(partial(outbox.postpone, letter=letter, now_ms=self._clock.now()))
        if not again:
            _log.error("%s; notice %s is given up after %d tries", problem, letter.notice["id"], outbox.MOST_TRIES)
        elif letter.tries == 0:  # each of its tries would say the same
            _log.warning("%s; notice %s is sent again later", problem, letter.notice["id"])
