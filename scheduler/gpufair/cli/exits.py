"""Exit codes, and how an error ends a command: one line on standard error (an object with ``--json``), no traceback."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from gpufair.core.errors import GpufairError

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
_JSON_FILES = ("simulate", "compare", "sweep", "shadow")
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

EPILOG = (
    "[bold]Exit codes[/bold]: 0 done · 1 refused or failed · 2 wrong usage · 3 the service cannot be reached · "
    "4 no such workload or node · 130 interrupted.\n\n"
    "[bold]Which service[/bold]: $GPUFAIR_URL with $GPUFAIR_TOKEN, $GPUFAIR_TOKEN_FILE or $GPUFAIR_TOKEN_FROM=jupyterhub, else the one that lives in "
    "the state folder ($GPUFAIR_STATE_DIR, else ~/.local/state/gpufair).\n\n"
    "[bold]IDs[/bold] may be shortened to 4 characters, or be a name, where only one workload is meant. "
    "With --json, standard output holds JSON only, and errors are JSON on standard error."
)


class CommandError(GpufairError):
    """A command cannot go on; ``exit_code`` says which kind of failure that is."""

    exit_code = FAILED

    def facts(self) -> dict[str, Any]:
        """What ``--json`` tells beside the sentence."""
        return {}


class NoSuch(CommandError):
    """Nothing matches what was asked for."""

    exit_code = NOT_FOUND


class Ambiguous(CommandError):
    """More than one thing matches."""

    exit_code = USAGE


class Wrong(CommandError):
    """What was asked for makes no sense together."""

    exit_code = USAGE


class Root(TyperGroup):
    """The root command: whatever goes wrong below it is told in one way."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **more: Any) -> Any:  # type: ignore[override]  # nobody passes the rest by position
        """Run and exit with a code of this module; never with a traceback (``GPUFAIR_DEBUG=1`` prints it)."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **more)
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(given, standalone_mode=False, **more)
            sys.stdout.flush()
        except BrokenPipeError:
            # `gpufair queue | head`: the reader has seen enough. Python's own flush at exit must not complain again.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = OK
        except Exception as err:  # noqa: BLE001  # the last resort: a user gets a sentence
            code = tell(err, as_json=_wants_json(given))
        sys.exit(code if isinstance(code, int) else OK)


def _wants_json(given: Sequence[str]) -> bool:
    """Whether standard output was to hold JSON. ``simulate`` and its kin name a file; only - is standard output."""
    if "--json" not in given:
        return False
    if given[0] not in _JSON_FILES:
        return True
    return given[given.index("--json") + 1 :][:1] == ["-"]


def tell(err: Exception, *, as_json: bool) -> int:
    """Print ``err`` to standard error and return its exit code."""
    if os.environ.get("GPUFAIR_DEBUG"):
        traceback.print_exception(err)
    facts, code = _facts(err)
    if as_json:
        typer.echo(json.dumps({**facts, "exit": code}), err=True)
    elif facts["detail"]:
        label = "gpufair: "
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            label = typer.style(label, fg="red", bold=True)
        typer.echo(label + facts["detail"], err=True)
    return code


def _facts(err: Exception) -> tuple[dict[str, Any], int]:
    facts: dict[str, Any] = {"error": type(err).__name__, "detail": str(err)}
    if isinstance(err, typer.Abort):
        return facts | {"detail": "interrupted"}, INTERRUPTED
    # Typer's usage errors come from the click it is built on, which newer versions hide: known by what they do.
    if hasattr(err, "format_message") and hasattr(err, "exit_code"):
        return _usage(err)
    if not isinstance(err, GpufairError):
        detail = f"unexpected {type(err).__name__}: {err}. This is a bug; GPUFAIR_DEBUG=1 shows where"
        return facts | {"detail": detail}, FAILED
    if isinstance(err, CommandError):
        return facts | err.facts(), err.exit_code
    from gpufair.client.errors import NotFound, ServiceError, Unavailable  # noqa: PLC0415  # only on failure

    if isinstance(err, ServiceError):
        facts |= {"status": err.status, "error": err.error or type(err).__name__}
        facts |= {key: err.body[key] for key in ("line", "file") if err.body.get(key) is not None}
    codes = ((NotFound, NOT_FOUND), (Unavailable, UNREACHABLE))
    return facts, next((code for kind, code in codes if isinstance(err, kind)), FAILED)


def _usage(err: Any) -> tuple[dict[str, Any], int]:
    context = getattr(err, "ctx", None)
    if type(err).__name__ == "NoArgsIsHelpError":  # `gpufair` alone: the help was asked for, in a way
        typer.echo(err.format_message(), err=True)
        return {"error": "Usage", "detail": ""}, USAGE
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return {"error": "Usage", "detail": err.format_message().rstrip(".") + hint}, int(err.exit_code)
