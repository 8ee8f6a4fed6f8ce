"""`gpufair agent`: make this machine a node of a service that runs elsewhere."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.exits import CommandError, Wrong
from gpufair.cli.options import AsJson, seconds_of
from gpufair.cli.output import line
from gpufair.cli.words import plural
from gpufair.paths import SERVICE_FILE, private_dir
from gpufair.paths import state_dir as find_state_dir

if TYPE_CHECKING:
    from gpufair.wire import NodeInventory

FOREVER = "forever"
_MOST_GPUS = 1024
_LAST_PORT = 65_535


def agent(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name in gpufair.toml, where it has remote = true.")],
    service: Annotated[str, typer.Option("--service", metavar="URL", help="Address of the service, https://…")],
    token_file: Annotated[
        Path, typer.Option("--token-file", metavar="FILE", help="From `gpufair nodes token NODE`; readable by you only.")
    ],
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates (PEM) that sign the service's.")
    ] = None,
    client_certificate: Annotated[
        Path | None,
        typer.Option("--client-certificate", metavar="FILE", help="Certificate and key (PEM) for a service that asks for one."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="What other machines call this one; else its own name.")
    ] = "",
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="Address for kernels' ports; else all.")
    ] = "0.0.0.0",  # noqa: S104  # a node is there to be reached; who comes has to know a kernel's key
    ports: Annotated[
        str, typer.Option("--ports", metavar="FIRST-LAST", help="Ports for kernels, one each; else any free one.")
    ] = "",
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="N", help="Virtual GPUs, for a try; else those that NVML finds.")
    ] = "auto",
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="Where it keeps what it has to; on this machine.")
    ] = None,
    run_as: Annotated[
        str, typer.Option("--run-as", metavar="WHOM", help="Workloads run as their owner (of root's agent), or the agent.")
    ] = "",
    owners: Annotated[
        Path | None, typer.Option("--owners", metavar="FILE", help="Table of users and accounts (TOML); else same names.")
    ] = None,
    linger: Annotated[
        str, typer.Option("--linger", metavar="DURATION", help="Without a service for so long, all is saved and ended.")
    ] = FOREVER,
    check: Annotated[
        bool, typer.Option("--check", help="Only look whether all is well, say what to do where it isn't, and end.")
    ] = False,
    as_json: AsJson = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let the token travel unencrypted, over a network that is yours alone.")
    ] = False,
) -> None:
    """Run the agent of this machine until it is told to end; what it started goes on, and the next agent finds it.

    Sessions' outputs and checkpoints are kept where the service keeps them: its state folder has to be there under the
    same path (a shared file system). As root it runs each workload as its owner, else all as itself.
    """
    from gpufair.cli import owners_file  # noqa: PLC0415  # heavy; `--help` need not pay
    from gpufair.node import agent as node_agent  # noqa: PLC0415  # as above
    from gpufair.node.certificates import certificate  # noqa: PLC0415  # as above
    from gpufair.node.files import write_json  # noqa: PLC0415  # as above
    from gpufair.node.theirs import passage  # noqa: PLC0415  # as above
    from gpufair.wire import to_json  # noqa: PLC0415  # as above

    url = _address(service, insecure=insecure)
    token = _token(token_file)
    of_whom = owners_file.owners(run_as, owners)
    place = (folder or find_state_dir() / "agents" / node).absolute()
    files = {"ca": ca, "certificate": client_certificate}
    there = {"url": url} | {name: None if path is None else str(path.absolute()) for name, path in files.items()}
    if check:
        from gpufair.cli import node_check  # noqa: PLC0415  # as above
        from gpufair.cli.doctor import report  # noqa: PLC0415  # as above

        plan = node_check.Planned(
            node, there, token, place, host or socket.getfqdn(), listen, _ports(ports), gpus != "auto", of_whom is not None
        )
        report(node_check.examine(plan), as_json=as_json)
        return
    if of_whom is None:
        private_dir(place)
    else:
        passage(place)
        if problem := owners_file.unusable(place):
            raise CommandError(f"workloads could not run as their owners: {problem}")
    offered = _inventory(node, gpus, host or socket.getfqdn())
    made = certificate(place, offered.host)
    write_json(place / SERVICE_FILE, there)
    config = place / "agent-config.json"
    wanted = {
        "node": to_json(offered),
        "state_dir": str(place),
        "token": token,
        "linger_s": None if linger == FOREVER else seconds_of(linger, "--linger"),
        "watch_s": 10.0,
        "tunnel": {
            "listen": listen,
            "host": offered.host,
            "certificate": str(made.certificate),
            "key": str(made.key),
            "ports": _ports(ports),
        },
        "owners": of_whom,
    }
    write_json(config, wanted)
    whose = "itself" if of_whom is None else "their owners"
    line(f"{node}: {plural(len(offered.gpu_ids), 'GPU')} for {url}, reached as {offered.host}; workloads run as {whose}")
    raise typer.Exit(node_agent.main(["--config", str(config)]))


def _inventory(node: str, gpus: str, host: str) -> NodeInventory:
    from gpufair.node.gpus import inventory, virtual  # noqa: PLC0415  # as above
    from gpufair.node.machine import cpus, memory_bytes  # noqa: PLC0415  # as above
    from gpufair.wire import NodeInventory  # noqa: PLC0415  # as above

    if gpus == "auto":
        found = inventory()
        if not found:
            raise CommandError("NVML finds no GPU on this machine; install the driver, or try it with --gpus 2")
        ids, kind = tuple(gpu.id for gpu in found), found[0].type
    else:
        if not gpus.isascii() or not gpus.isdecimal() or int(gpus) > _MOST_GPUS:
            raise Wrong(f"--gpus {gpus!r}: expected auto or a number up to {_MOST_GPUS}")
        ids, kind = virtual(int(gpus)), ""
    return NodeInventory(node, ids, kind, cpus=cpus(), memory_bytes=memory_bytes(), host=host)


def _address(service: str, *, insecure: bool) -> str:
    from gpufair.client.endpoint import Endpoint, checked  # noqa: PLC0415  # as above
    from gpufair.client.errors import Unavailable  # noqa: PLC0415  # as above

    try:
        url = checked(service, "--service", "write it like https://gpufair.lab:8890", "leave it out; its token is in --token-file")
    except Unavailable as err:
        raise Wrong(str(err)) from err
    if url.startswith("http:") and not Endpoint(url).loopback and not insecure:
        raise Wrong(
            f"--service {url}: this node's token, and the keys of its kernels, would travel unencrypted; give the "
            "service a certificate ([tls] of its gpufair.toml) and name its https:// address here, or say --insecure on a network of your own"
        )
    return url


def _token(path: Path) -> str:
    from gpufair.client.endpoint import private_text  # noqa: PLC0415  # as above

    try:
        token = private_text(path).strip()
    except (OSError, UnicodeDecodeError) as err:
        raise CommandError(
            f"--token-file {path} cannot be read ({err}); write it with `gpufair nodes token NODE --output FILE` where the "
            "service runs, and copy it here"
        ) from err
    if not token:
        raise CommandError(f"--token-file {path} is empty")
    return token


def _ports(text: str) -> tuple[int, int]:
    if not text:
        return (0, 0)
    first, _, last = text.partition("-")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        low, high = 0, 0
    if not 0 < low <= high <= _LAST_PORT:
        raise Wrong(f"--ports {text!r}: expected two numbers like 42000-42999, up to {_LAST_PORT}")
    return low, high
