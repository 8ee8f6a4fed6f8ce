"""`gpufair agent --check`: would an agent of this machine do its work, and if not, what to do."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from gpufair.cli.checkup import LEAST_FREE_BYTES, versions
from gpufair.cli.node_findings import MOST_SKEW_S, PACKAGE, Finding
from gpufair.cli.words import plural
from gpufair.core.errors import GpufairError
from gpufair.node.files import is_locked
from gpufair.node.gpus import inventory
from gpufair.node.health import sick_gpus
from gpufair.node.service_calls import Refused, ServiceCalls, ServiceUnreachable
from gpufair.wire import API_VERSION, hello_proof

_ANOTHER: Final = "write it anew with `gpufair nodes token {}` where the service runs, and copy it here"


@dataclass(frozen=True, slots=True)
class Planned:
    """What an agent would be started with."""

    node: str
    service: Mapping[str, str | None]  # address, and files for TLS: see ``ServiceCalls.at``
    token: str
    folder: Path
    host: str
    listen: str
    ports: tuple[int, int]
    virtual: bool  # its GPUs are
    as_owners: bool

    @property
    def url(self) -> str:
        return self.service["url"] or ""


def examine(plan: Planned) -> Iterator[Finding]:
    """All findings. A check that breaks is a finding, too."""
    for check in (versions, _gpus, _folder, _owners, _name, _ports, _service):
        try:
            yield from check(plan)
        except (GpufairError, OSError) as err:
            yield Finding(check.__name__.strip("_"), "problem", str(err))


def _gpus(plan: Planned) -> Iterator[Finding]:
    if plan.virtual:
        yield Finding("GPUs", "note", "virtual ones, as --gpus says: nothing is computed on them")
        return
    found = inventory()
    if not found:
        yield Finding("GPUs", "problem", "NVML finds none on this machine", "install the driver, or try it with --gpus 2")
        return
    kinds = sorted({gpu.type for gpu in found})
    if len(kinds) > 1:
        said = f"{', '.join(kinds)} are in one machine, and count as {found[0].type}"
        yield Finding("GPUs", "warning", said, "who asks for a type may get another one here")
    else:
        yield Finding("GPUs", "ok", f"{plural(len(found), 'GPU')} of type {kinds[0]}")
    for _, said in sick_gpus(gpu.id for gpu in found):
        yield Finding("GPUs", "problem", said)


def _folder(plan: Planned) -> Iterator[Finding]:
    there = next(path for path in (plan.folder, *plan.folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    said = f"{free / (1 << 30):.1f} GiB free at {plan.folder}"
    if free < LEAST_FREE_BYTES:
        yield Finding("folder", "warning", said, "make room, or name another one with --folder")
    else:
        yield Finding("folder", "ok", said)
    if is_locked(plan.folder / "agent.lock"):
        yield Finding("agent", "note", "one runs here now; it goes on")


def _owners(plan: Planned) -> Iterator[Finding]:
    from gpufair.cli.owners_file import unusable  # noqa: PLC0415  # as below

    if not plan.as_owners:
        yield Finding("owners", "note", "workloads run as the agent; started as root it runs them as their owners")
        return
    there = next(path for path in (plan.folder, *plan.folder.parents) if path.exists())
    if problem := unusable(there):
        yield Finding("owners", "problem", problem, "install jupyter-gpufair in /opt/gpufair, and say --folder /var/lib/gpufair-agent")
    else:
        yield Finding("owners", "ok", "workloads run as their owners")


def _name(plan: Planned) -> Iterator[Finding]:
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(plan.host, None, type=socket.SOCK_STREAM)}
    except OSError as err:
        yield Finding("name", "problem", f"{plan.host!r} has no address ({err})", "name one that other machines know with --host")
        return
    if all(one.startswith("127.") or one == "::1" for one in found):
        said = f"{plan.host!r} is this machine for itself only: {', '.join(sorted(found))}"
        yield Finding("name", "warning", said, "name one that other machines know with --host, or correct /etc/hosts")
    else:
        yield Finding("name", "ok", f"kernels are reached at {plan.host} ({', '.join(sorted(found))})")


def _ports(plan: Planned) -> Iterator[Finding]:
    first, last = plan.ports
    if not first:
        yield Finding("ports", "note", "any free one is used for a kernel", "give --ports 42000-42999 where a firewall has to know")
        return
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((plan.listen, port))
            except OSError:
                continue
        yield Finding("ports", "ok", f"{first} to {last}; open them for machines with Jupyter servers")
        return
    yield Finding("ports", "problem", f"none of {first} to {last} can be opened on {plan.listen}", "give others with --ports")


def _service(plan: Planned) -> Iterator[Finding]:
    nonce = secrets.token_hex(16)
    try:
        asked = time.time()
        answer = asyncio.run(_asked(plan, nonce))
        answered = time.time()
    except ServiceUnreachable as err:
        advice = "see that it runs, that this machine may reach it, and that --ca names who signed its certificate"
        yield Finding("service", "problem", f"{plan.url} does not answer: {err}", advice)
        return
    except Refused as err:
        yield _refused(plan, err)
        return
    proof = hello_proof(plan.token, nonce)
    if not hmac.compare_digest(str(answer.get("proof", "")).encode(), proof.encode()):
        yield Finding("service", "problem", f"whoever answers at {plan.url} does not know this node's token", "correct --service")
        return
    if not answer["known"]:
        advice = f'add [[node]] with name = "{plan.node}" and remote = true to its gpufair.toml, and reload it'
        yield Finding("service", "problem", f"node {plan.node!r} is not in its configuration as a remote one", advice)
    else:
        yield Finding("service", "ok", f"{plan.url} knows {plan.node}, and each knows the other's token")
    yield from _skews(answer, asked, answered)


def _refused(plan: Planned, err: Refused) -> Finding:
    if err.status in {401, 403}:
        return Finding("token", "problem", f"the service does not take this token: {err.detail}", _ANOTHER.format(plan.node))
    if err.status == 404:
        return Finding("service", "problem", f"{plan.url} does not know this question", "correct --service, or update the service")
    return Finding("service", "problem", str(err))


def _skews(answer: dict[str, Any], asked: float, answered: float) -> Iterator[Finding]:
    mine, theirs = metadata.version(PACKAGE), str(answer["version"])
    if answer["api_version"] != API_VERSION:
        said = f"the service speaks version {answer['api_version']} with agents, this agent {API_VERSION}"
        yield Finding("version", "problem", said, "update the older; sessions go on meanwhile")
    elif theirs != mine:
        said = f"the service is version {theirs}, this agent {mine}"
        yield Finding("version", "warning", said, "update the older, the service first; sessions go on meanwhile")
    skew = max(answer["now_s"] - answered, asked - answer["now_s"], 0.0)
    if skew > MOST_SKEW_S:
        yield Finding("clock", "warning", f"this machine and the service differ by {skew:.0f} s", "let NTP set both")
    else:
        yield Finding("clock", "ok", "this machine and the service agree")


async def _asked(plan: Planned, nonce: str) -> dict[str, Any]:
    calls = ServiceCalls.at(plan.service, plan.node, plan.token)
    try:
        return await calls.call("GET", f"/check?boot={nonce}")
    finally:
        calls.close()
