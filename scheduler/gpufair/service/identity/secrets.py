"""The service's one secret and what is derived from it. Derived, so that nothing secret is ever journalled."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from gpufair.core.errors import GpufairError
from gpufair.node.files import write_private
from gpufair.paths import private_dir

SECRET_FILE = "secret"  # noqa: S105  # a file name
_BYTES = 32


class SecretError(GpufairError):
    """The secret of a state folder can't be used."""


class Secrets:
    """Keys and tokens of one state folder. Hex strings; the same after each restart."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _BYTES:
            raise SecretError(f"a secret has {_BYTES} bytes, this one has {len(secret)}")
        self._secret = secret

    def __repr__(self) -> str:
        return "Secrets(...)"  # never in a log

    @classmethod
    def load(cls, state_dir: Path) -> Secrets:
        """The secret in ``state_dir``, made (0600) if there is none yet.

        Raises:
            SecretError: It is readable by others, damaged, or can't be read or written.
        """
        path = state_dir / SECRET_FILE
        try:
            private_dir(state_dir)
            if not path.exists():
                write_private(path, os.urandom(_BYTES))
            if path.stat().st_mode & 0o077:
                raise SecretError(f"{path} can be read by others, so its tokens are not safe; run: chmod 600 {path}")
            secret = path.read_bytes()
        except OSError as err:
            raise SecretError(f"{path} cannot be read or written: {err.strerror or err}") from err
        if len(secret) != _BYTES:
            raise SecretError(
                f"{path} has {len(secret)} bytes instead of {_BYTES}; restore it from a backup "
                "(without it checkpoints cannot be verified), or move it away to begin with a new one"
            )
        return cls(secret)

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).hexdigest()

    def kernel_key(self, workload: str) -> str:
        """The Jupyter session key of a kernel, for its whole life."""
        return self._derive(f"kernel:{workload}")

    def checkpoint_key(self, user: str) -> str:
        """Signs and verifies a user's checkpoints."""
        return self._derive(f"checkpoint:{user}")

    def user_token(self, user: str) -> str:
        """What a user's requests carry."""
        return self._derive(f"token:{user}")

    def agent_token(self, node: str) -> str:
        """What an agent's requests carry; good for the routes of its node only."""
        return self._derive(f"agent:{node}")

    def pod_token(self, pod: str) -> str:
        """What the requests of the agent in a pod carry; good for the routes of that pod only."""
        return self._derive(f"pod:{pod}")

    def public_name(self) -> str:
        """Public: tells the services of this state folder from those of others."""
        return self._derive("public name")[:32]

    def journal_mark(self, seq: int, digest: str) -> str:
        """Public: says that whoever has this secret has a journal with this entry, and nothing of either."""
        return self._derive(f"journal:{seq}:{digest}")[:32]

    def operator_token(self) -> str:
        """What the owner of the state folder carries: may do everything."""
        return self._derive("operator")
