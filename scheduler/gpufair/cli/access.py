"""Commands about who may do what: `gpufair dashboard`, `gpufair tokens`, `gpufair audit`."""

from __future__ import annotations

import time
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import clean, moment, plural

if TYPE_CHECKING:
    from gpufair.client.access import TokenView

tokens = typer.Typer(help="Tokens for scripts, monitors and browsers: list, create, revoke.", no_args_is_help=True)
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user; default: you, or everybody.")]


def dashboard(
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser of this machine.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Print a link to the service's own pages: good once, within a minute. They show what JupyterLab's panel shows."""
    from gpufair.client import access  # noqa: PLC0415  # as all of the client

    with client(state_dir) as service:
        made = service.send(access.link())
        url = service.endpoint().url + made.path
    if as_json:
        emit_json({"url": url, "lasts_s": made.lasts_s})
    elif not (open_it and webbrowser.open(url)):
        line(url)


@tokens.command("list")
def list_tokens(
    user: User = None,
    every: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """List tokens; an operator or auditor sees everybody's. What a token is nobody can find out again."""
    from gpufair.client import access  # noqa: PLC0415  # as above

    now = time.time()
    with client(state_dir) as service:
        found = [one for one in service.send(access.tokens(user)).tokens if every or not one.over(now)]
    if as_json:
        emit_json({"tokens": found})
        return
    heads = ("ID", "USER", "SCOPE", "LABEL", "MADE", "ENDS")
    rows = [(one.id, one.user, one.scope, one.label, moment(one.made_s, now), _end(one, now)) for one in found]
    table([Column(head) for head in heads], rows, "no token was made; those in tokens/ of the state folder are not listed")


@tokens.command("create")
def create_token(
    scope: Annotated[
        str, typer.Option("--scope", help="read: look; act: work with what is yours; manage: all that you may.")
    ] = "read",
    label: Annotated[str, typer.Option("--label", help="What it is for.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="When it ends by itself: 8h, 90d.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="For whom; default: you.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Make a token and print it, this once. It can do no more than yours, and ends with it."""
    from gpufair.client import access  # noqa: PLC0415  # as above

    lasts_s = None if expires is None else seconds_of(expires, "--expires")
    with client(state_dir) as service:
        made = service.send(access.make_token(scope, label, lasts_s, user))
    if as_json:
        emit_json(made)
        return
    # Alone on standard output, so that it can go straight into a file.
    line(made.token)
    typer.echo(f"{made.id}: {made.scope}, for {clean(made.user)}, {_end(made, time.time())}", err=True)


@tokens.command("revoke")
def revoke_token(
    tokens: Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` shows them.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Revoke tokens, and all that were made with them: from now on they open nothing."""
    from gpufair.client import access  # noqa: PLC0415  # as above

    with client(state_dir) as service:
        gone = [service.send(access.revoke_token(one)) for one in tokens]
    if as_json:
        emit_json({"tokens": gone})
    else:
        line(f"{plural(len(gone), 'token')} revoked")


def audit(
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="What this user changed.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many.")] = 50,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show who changed what, the newest first; for operators and auditors."""
    from gpufair.client import access  # noqa: PLC0415  # as above

    with client(state_dir) as service:
        found = service.send(access.audit(user, limit)).changes
    if as_json:
        emit_json({"changes": found})
        return
    now = time.time()
    heads = ("WHEN", "USER", "ROLE", "TOKEN", "REQUEST", "JOURNAL")
    rows = [
        (moment(one.at_s, now), one.user, one.role, one.token, one.request, "–".join(map(str, dict.fromkeys(one.entries or ()))))
        for one in found
    ]
    table([Column(head) for head in heads], rows, "nothing was changed yet")


def _end(one: TokenView, now: float) -> str:
    if one.revoked_s is not None:
        return f"revoked {moment(one.revoked_s, now)}"
    return "until revoked" if one.expires_s is None else f"until {moment(one.expires_s, now)}"
