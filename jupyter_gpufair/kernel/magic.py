"""The line magic ``%gpufair``: what a notebook can ask about its own session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from gpufair.core.errors import GpufairError
from jupyter_gpufair.kernel.replay import Recipes

ASK = "ask"  # in the metadata of an output: what the supervisor, which hears all outputs, is to do


class UnknownCommand(GpufairError):
    """``%gpufair`` was asked for something that it does not know."""

    def __init__(self, word: str, known: list[str]) -> None:
        super().__init__(word)
        self.word, self.known = word, known

    def __str__(self) -> str:
        return f"%gpufair knows {', '.join(self.known)}, not {self.word!r}"


class NotHere(GpufairError):
    """The kernel's environment has no client of the scheduler."""

    def __init__(self, word: str, missing: str) -> None:
        super().__init__(word, missing)
        self.word, self.missing = word, missing

    def __str__(self) -> str:
        return f"%gpufair {self.word} needs {self.missing}, which this kernel does not have; the side panel tells the same"


class Magic:
    """``%gpufair WORD …``. ``commands`` is a table of words, for more of them to be added."""

    def __init__(
        self, shell: Any, preflight: Callable[[float], Any], recipes: Recipes, rerun: Callable[[str], str]
    ) -> None:
        self._shell, self._recipes = shell, recipes
        self.commands: dict[str, Callable[[str], Any]] = {
            "checkpoint": self._checkpoint,
            "replay": self._replay,
            "rerun": rerun,
            "preflight": lambda line: preflight(float(line)) if line else preflight(2.0),
            **{word: partial(_asked, word) for word in ("status", "why", "budget")},
        }
        shell.register_magic_function(self.run, "line", "gpufair")

    def run(self, line: str) -> Any:
        """%gpufair status: this session's state, GPUs, protection, budget and last checkpoint.

        %gpufair why: why it is where it is, and what could take its GPUs. %gpufair budget: how its allocation stands.

        %gpufair preflight [SECONDS]: can this session be parked, and what would be lost?

        %gpufair checkpoint: save the session as soon as this cell has ended.

        %gpufair replay on|off: after a restore, run again the cells that made what cannot be saved, where that is certain
        to give the same.

        %gpufair rerun on|off: a cell that a preemption cuts runs again, from the state before it.
        """
        word, _, rest = line.strip().partition(" ")
        command = self.commands.get(word or "preflight")
        try:
            if command is None:
                raise UnknownCommand(word, sorted(self.commands))
            return command(rest.strip())
        except (GpufairError, ValueError) as err:
            from IPython.core.error import UsageError  # noqa: PLC0415 - shown without a traceback

            raise UsageError(str(err)) from None

    def _replay(self, line: str) -> str:
        if line not in {"", "on", "off"}:
            raise UnknownCommand(f"replay {line}", ["replay on", "replay off"])
        if line:
            self._recipes.on = line == "on"
        return f"replay is {'on' if self._recipes.on else 'off'}"

    def _checkpoint(self, line: str) -> None:
        text = "The session will be saved when this cell has ended; the status bar tells how that went."
        self._shell.display_pub.publish({"text/plain": text}, metadata={"gpufair": {ASK: "checkpoint"}})


def _asked(word: str, line: str) -> None:
    """What the scheduler is asked. By name: its client is no part of a kernel, and may not be installed beside one."""
    try:
        module = import_module("jupyter_gpufair.asks")
    except ImportError as err:
        raise NotHere(word, err.name or str(err)) from None
    getattr(module, word)(line)
