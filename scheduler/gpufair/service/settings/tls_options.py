"""``[tls]`` of the configuration: the service's own certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpufair.service.settings.tables import Table


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """PEM files. ``certificate`` None: no TLS. ``client_ca``: authorities one of which has to have signed who connects."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def __bool__(self) -> bool:
        return self.certificate is not None


def read_tls(table: Table, folder: Path) -> TlsOptions:
    """The table as options. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    given = {
        name: folder / table.text(name, "", longest=4096) for name in ("certificate", "key", "client_ca") if table.has(name)
    }
    for name, path in given.items():
        if not path.is_file():
            table.fail(f"{name} names {path}, which is not there; correct the path (it counts from this file)", name)
    if given and not {"certificate", "key"} <= set(given):
        table.fail("TLS needs both a certificate and its key", None)
    table.finish()
    return TlsOptions(**given)
