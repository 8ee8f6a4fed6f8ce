"""The tokens of configured users, in files that an operator hands out."""

from __future__ import annotations

from pathlib import Path

from gpufair.node.files import write_private
from gpufair.paths import private_dir
from gpufair.service.identity.secrets import Secrets
from gpufair.service.settings.config import Config


def write_tokens(state_dir: Path, secrets: Secrets, config: Config) -> None:
    """A token file for each configured user, to be handed out; those of users who are gone are removed."""
    folder = private_dir(state_dir / "tokens")
    users = {*config.users, *config.operators, *config.auditors, *config.budget_owners}
    for user in sorted(users):
        path = folder / f"{user}.token"
        data = f"{secrets.user_token(user)}\n".encode()
        if not path.exists() or path.read_bytes() != data:
            write_private(path, data)
    for path in folder.glob("*.token"):
        if path.stem not in users:
            path.unlink()
