"""Commands about who may do what: `gpufair dashboard`."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import emit_json, line


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
