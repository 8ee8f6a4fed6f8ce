"""The command line: `gpufair`. Modules are imported when a command needs them, so that help and completion are quick."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gpufair` script."""
    from gpufair.cli.app import app  # noqa: PLC0415  # importing gpufair.cli.demo must not build the command line

    app(prog_name="gpufair")


__all__ = ["main"]
