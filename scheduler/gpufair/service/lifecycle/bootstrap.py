"""What a start brings in line: options and budgets as configured, and nodes that the last shutdown had cordoned."""

from __future__ import annotations

import hashlib
import json
import logging
from functools import partial

from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import Allocation
from gpufair.core.units import NodeName
from gpufair.service.budgets.budget_changes import change
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.config import Config
from gpufair.service.storage.journal import Journal
from gpufair.service.workloads.turn import Turn

BUDGETS_KEY = "budgets-file"  # digest of the configured budgets that were applied last
CONFIGURATION = "gpufair.toml"  # who changed them, in the history
CORDONED_KEY = "cordoned-for-shutdown"  # names of nodes, JSON
_log = logging.getLogger(__name__)


async def apply_policy(runtime: Runtime, config: Config) -> None:
    """Options as configured, journalled if they changed."""

    def step(turn: Turn) -> None:
        # The first entry of every journal: what is decided later was decided by options that it names.
        if turn.state.policy != config.policy or (not turn.state.facts.records and not turn.state.nodes()):
            turn.handle(ev.PolicyChanged(turn.now, turn.cause(), config.policy))

    await runtime.do(step)


async def apply_budgets(runtime: Runtime, journal: Journal, config: Config, *, strict: bool = False) -> None:
    """The configured budgets, if they are others than at the last start: what was applied through the API stays.

    Budgets that can't be applied (they drop an allocation that has live workloads) leave those in force, so that their
    owners can be served; the log says so.

    Raises:
        GpufairError: The same, where ``strict``.
    """
    wanted = config.budgets.allocations
    digest = _digest(wanted)
    if await journal.meta(BUDGETS_KEY) == digest:
        return

    source = config.budgets_file or "the default budgets"
    try:
        await runtime.do(partial(change, allocations=wanted, by=CONFIGURATION, why=f"{source}, as configured"))
    except GpufairError as err:
        if strict:
            raise
        _log.error("%s cannot be applied, the budgets in force stay: %s", source, err)
        return
    await journal.set_meta(BUDGETS_KEY, digest)


async def uncordon(runtime: Runtime, journal: Journal) -> None:
    """Open the nodes that the last shutdown closed. Those that an operator closed stay closed."""
    names = json.loads(await journal.meta(CORDONED_KEY) or "[]")
    if not names:
        return

    def step(turn: Turn) -> None:
        cordoned = {view.node.name for view in turn.state.nodes() if view.cordoned}
        for name in names:
            if name in cordoned:
                turn.handle(ev.NodeUncordoned(turn.now, turn.cause(), NodeName(name)))

    await runtime.do(step)
    await journal.set_meta(CORDONED_KEY, "[]")


def _digest(allocations: tuple[Allocation, ...]) -> str:
    plain = [[one.path, one.share, list(one.members)] for one in allocations]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()
