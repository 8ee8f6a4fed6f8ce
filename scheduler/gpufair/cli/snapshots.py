"""The live state in a file, or as a service hands it out: for `replay`, `whatif` and `snapshot`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import StateDir, client
from gpufair.cli.results import check_writable, write_text

if TYPE_CHECKING:
    from gpufair.core.state import State

_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Handed:
    """A state, and the number of the journal's last entry in it."""

    seq: int
    state: State


def snapshot(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where to write it.")],
    state_dir: StateDir = None,
) -> None:
    """Write the live state to a file, for `gpufair whatif --snapshot` and `gpufair replay --from`.

    How workloads are run is left out, and for budget owners who are no operators names and reasons as well.
    """
    check_writable({"FILE": file})
    with client(state_dir) as service:
        seen = service.snapshot()
    write_text(file, json.dumps(seen, separators=(",", ":")))
    typer.echo(f"the state after entry {seen.get('seq')} is in {file}", err=True)


def read_file(path: Path) -> dict[str, Any]:
    """A snapshot's file as it is.

    Raises:
        CommandError: It can't be read, or is none.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CommandError(f"{path} is larger than 1 GiB, which no snapshot is; name another file")
        data = json.loads(path.read_bytes())
    except OSError as err:
        raise CommandError(f"{path} cannot be read: {err.strerror or err}; `gpufair snapshot FILE` writes one") from err
    except (ValueError, RecursionError) as err:
        raise CommandError(f"{path} holds no snapshot; `gpufair snapshot FILE` writes one") from err
    if not isinstance(data, dict) or not isinstance(data.get("state"), dict) or not isinstance(data.get("seq"), int):
        raise CommandError(f"{path} holds no snapshot; `gpufair snapshot FILE` writes one")
    return data


def read_snapshot(path: Path) -> Handed:
    """The state in a file, as of the moment at which it was handed out."""
    return to_now(read_file(path), str(path))


def to_now(handed: Mapping[str, Any], where: str) -> Handed:
    """What was handed out as a state; time has passed on it until it was handed out.

    Raises:
        CommandError: It is of another version, or damaged.
    """
    from gpufair.core.errors import GpufairError  # noqa: PLC0415  # the core is not needed by other commands
    from gpufair.core.events import TimePassed  # noqa: PLC0415  # as above
    from gpufair.core.snapshot import restore  # noqa: PLC0415  # as above
    from gpufair.core.units import CauseId, Instant  # noqa: PLC0415  # as above

    try:
        state = restore(handed["state"])
        now = Instant(max(state.now, round(float(handed.get("now_s") or 0.0) * 1000)))
    except (GpufairError, TypeError, ValueError, KeyError, AttributeError) as err:
        raise CommandError(
            f"the state of {where} cannot be read ({err}); use the version of gpufair that wrote it"
        ) from err
    while (due := state.next_wakeup()) is not None and due <= now:
        state.handle(TimePassed(due, CauseId("what-if")))
    state.handle(TimePassed(now, CauseId("what-if")))
    return Handed(int(handed["seq"]), state)
