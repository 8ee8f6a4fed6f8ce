"""All that takes part in telling people something, put together."""

from __future__ import annotations

from contextlib import AsyncExitStack

from gpufair.clock import Clock
from gpufair.service.delivery.budget_watch import BudgetWatch
from gpufair.service.delivery.courier import Courier
from gpufair.service.delivery.senders import Mail, Sender, Webhook
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.notification_options import NotificationOptions
from gpufair.service.storage.journal import Journal


async def tell(
    stack: AsyncExitStack, runtime: Runtime, journal: Journal, clock: Clock, options: NotificationOptions
) -> None:
    """Have notices sent for as long as the stack is open. Without a channel there is nothing to do."""
    senders: list[Sender] = []
    if options.webhook.url or options.webhook.users:
        senders.append(Webhook(options.webhook))
    if options.mail.host:
        senders.append(Mail(options.mail))
    if not senders:
        return
    couriers = [Courier(journal, clock, sender) for sender in senders]
    parts: list[Courier | BudgetWatch] = [*couriers, BudgetWatch(runtime, journal, clock)]
    for part in parts:
        part.start()
        stack.push_async_callback(part.close)

    def wake() -> None:
        for courier in couriers:
            courier.wake()

    runtime.on_notices = wake
