"""Commands that run something: the service, the demo, JupyterLab."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", dir_okay=False, help="Configuration; default: gpufair.toml in the XDG places."
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="FOLDER", file_okay=False, help="Where it keeps its state; owner-only."),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; default: loopback.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on; default: a free one.")
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="End some time after the last Jupyter server has gone.")
    ] = False,
    linger: Annotated[
        str | None,
        typer.Option(
            "--linger", metavar="DURATION", help="With --embedded: how long it stays, like 15m, or 'until idle'."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen for other machines without TLS, on a network that is yours alone.")
    ] = False,
) -> None:
    """Run the scheduler service until it is stopped (Ctrl-C or SIGTERM)."""
    # By name: what the service brings (a web server, a database) is paid for here only.
    start = import_module("gpufair.service.serve").run
    code = start(
        config=config, state_dir=state_dir, host=host, port=port, embedded=embedded, linger=linger, insecure=insecure
    )
    raise typer.Exit(code or 0)


def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the story goes to standard error.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", dir_okay=False, help="Where to write the timeline.")
    ] = None,
) -> None:
    """Play the whole story on this machine, with real notebooks: exits with 1 if a check does not hold."""
    raise typer.Exit(import_module("gpufair.cli.demo").run(as_json=as_json, html=html) or 0)


def lab() -> None:
    """Open JupyterLab on the demo's set-up."""
    raise typer.Exit(import_module("gpufair.cli.demo").lab() or 0)
