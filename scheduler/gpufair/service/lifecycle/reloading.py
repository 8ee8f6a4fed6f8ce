"""Taking a changed gpufair.toml into use while everything goes on: what can be changed so, and what needs a restart."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpufair.client.answers import Reloaded
from gpufair.core.errors import GpufairError
from gpufair.service.identity.token_files import write_tokens
from gpufair.service.lifecycle import bootstrap
from gpufair.service.problems import BadRequest
from gpufair.service.settings.config import Config, find_config, load_config

if TYPE_CHECKING:
    from fastapi import FastAPI

# Everything else is held by parts that were made at the start.
LIVE: Final = frozenset({"policy", "profiles", "users", "operators", "auditors", "budget_owners", "budgets", "hub"})
_PLACES: Final = frozenset({"source", "budgets_file"})  # where it was read from: no option
_log = logging.getLogger(__name__)


def _found(source: Path | None) -> Config:
    file = find_config(source)
    if file is None:
        raise BadRequest("the service runs without a configuration file, and there is none now; write gpufair.toml first")
    return load_config(file)


class Reloader:
    """Reads the configuration again for the service behind ``app``."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def reload_soon(self) -> None:
        """As a signal asks for it: what came of it is in the log."""
        task = asyncio.create_task(self._logged())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reload(self) -> Reloaded:
        """Read the file, and take into use what can be.

        Raises:
            GpufairError: Something in it is not valid, or cannot be applied; all is as it was, but for what the error says.
        """
        async with self._turn:
            was = self._app.state.context.config
            wanted = await asyncio.to_thread(_found, was.source)
            # What a flag said still holds; it is not a change of the file.
            flags = {name: getattr(was.service, name) for name in ("host", "port", "linger", "insecure")}
            wanted = replace(wanted, service=replace(wanted.service, **flags))
            differing = {one.name for one in fields(Config) if getattr(was, one.name) != getattr(wanted, one.name)}
            changed, rest = differing & LIVE, differing - LIVE - _PLACES
            certificates = self._app.state.context.certificates
            renewed = certificates is not None and await asyncio.to_thread(certificates.reload)
            await self._use(replace(was, **{name: getattr(wanted, name) for name in changed | (differing & _PLACES)}))
            changed |= {"certificate"} if renewed else set()
            _log.info("the configuration was read again: %s", ", ".join(sorted(changed)) or "nothing is new")
            if rest:
                _log.warning("changed, but in use only after a restart: %s", ", ".join(sorted(rest)))
            return Reloaded(
                file=str(wanted.source or ""), changed=tuple(sorted(changed)), needs_restart=tuple(sorted(rest))
            )

    async def _use(self, config: Config) -> None:
        it = self._app.state.context
        # What may be refused comes first.
        await bootstrap.apply_budgets(it.runtime, it.journal, config, strict=True)
        await bootstrap.apply_policy(it.runtime, config)
        await it.authenticator.use_hub(config.hub)
        it.authenticator.configure(config.users, config.operators, config.budget_owners, config.auditors)
        await asyncio.to_thread(write_tokens, it.state_dir, it.secrets, config)
        if it.kubernetes is not None:
            it.kubernetes.configure(config)
        self._app.state.context = replace(it, config=config)

    async def _logged(self) -> None:
        try:
            await self.reload()
        except (GpufairError, OSError) as err:
            _log.error("the configuration was not taken into use: %s", err)
