"""The pool of the scheduler service: told who we are."""

from __future__ import annotations

from typing import Any

from gpufair.cpu.waiting import TURNS


def introduce(client: Any, leaf: str, user: str) -> None:
    """Say whose tasks those of a Dask client are; a scheduler that gives no turns is not interested."""

    def hello(plugin: str, client: str, leaf: str, user: str, dask_scheduler: Any) -> None:
        if (turns := dask_scheduler.plugins.get(plugin)) is not None:
            turns.introduce(client, leaf, user)

    client.run_on_scheduler(hello, TURNS, client.id, leaf, user)
