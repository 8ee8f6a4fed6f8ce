"""`gpufair reload`: a changed configuration without a restart."""

from __future__ import annotations

from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import emit_json, line


def reload(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Have the service read gpufair.toml again: people, profiles, budgets and the policy change while all goes on."""
    with client(state_dir) as service:
        done = service.reload()
    if as_json:
        emit_json(done)
        return
    line(f"{done.file or 'no file; the defaults'}: {_listed(done.changed) or 'nothing'} changed and in use")
    if done.needs_restart:
        line(f"{_listed(done.needs_restart)} changed, too; restart the service for that (sessions go on meanwhile)")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)
