"""The agent of a node: ``python -m gpufair.node.agent --config FILE``.

Takes commands from the service, starts and adopts supervisors, passes on their reports. It may be killed at any time:
supervisors go on, and the next agent finds them in the node's folder. When no service has been reachable for the
linger time, it has everything checkpointed and stopped, and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import logging
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from gpufair.core.errors import GpufairError
from gpufair.node.agent_config import AgentConfig, BadConfig
from gpufair.node.files import read_json, try_lock, write_json
from gpufair.node.health import look_after
from gpufair.node.life import Life
from gpufair.node.outbox import Outbox
from gpufair.node.service_calls import OldLeader, Refused, ServiceCalls, WrongService
from gpufair.node.starting import start
from gpufair.node.supervised import Supervised, prune_finished
from gpufair.node.theirs import passage
from gpufair.node.touch import Holder, watch
from gpufair.node.usage import measure
from gpufair.paths import SERVICE_FILE, private_dir
from gpufair.wire import (
    API_VERSION,
    COMMAND_WAIT_S,
    HEARTBEAT_S,
    AgentHello,
    Command,
    from_json,
    hello_proof,
    to_json,
)

BACKOFF_S = (0.1, 2.0)
STEADY_S = 5.0  # a conversation that lasted that long went well
LINGER_CHECK_S = 1.0
LEADER_CHECK_S = 2.0
MOST_UNSAID = 1000  # reports that are kept for a service that is not there when a pod has to end
ALONE = "No scheduler has been there for too long: this session is saved and stopped."
LOCK_TRIES, LOCK_PAUSE_S = 5, 0.05
_log = logging.getLogger(__name__)


class Agent:
    """One node. ``folder`` is its own; no other agent may use it at the same time."""

    def __init__(self, config: AgentConfig, folder: Path, life: Life | None = None) -> None:
        """``life``: until when it works; None: as a node's agent does."""
        self._config = config
        self._life = life or Life()
        self._leaving = False  # nothing is started any more
        self._root = folder / "workloads"
        if config.owners is None:
            private_dir(self._root)
        else:
            passage(self._root)
        self._boot = secrets.token_hex(8)
        self._outbox = Outbox()
        self._live: dict[tuple[str, int], Supervised] = {}
        self._alone_since: float | None = time.monotonic()  # monotonic; None while a service answers
        self._names = 0
        self._problems: list[str] = []  # of this machine
        self._epoch = 0  # the highest that a service has named
        try:
            write_json(folder / "agent.json", {"pid": os.getpid(), "boot": self._boot}, durable=False)
        except OSError as err:  # a full disk: what runs here needs an agent all the same
            _log.warning("agent.json cannot be written: %s", err)

    # ---------------------------------------------------------------- life

    async def run(self) -> None:
        """Work until there is nothing to work for (see ``linger_s``, and its life)."""
        for path in sorted(self._root.iterdir()):
            found = Supervised.found(path, self._reported)
            if found is not None:
                self._live[found.key] = found
                found.follow()
        talking = asyncio.create_task(self._talk(), name="talk")
        lingering = asyncio.create_task(self._linger(), name="linger")
        living = asyncio.create_task(self._life.over(), name="live")
        aside = [asyncio.create_task(measure(self._in_use, self._measured), name="measure")]
        looking = look_after(self._config.node.gpu_ids, (self._root, self._config.state_dir), self._ailing)
        aside.append(asyncio.create_task(looking, name="health"))
        if (pause_s := self._config.watch_s) is not None:
            watching = watch(self._holders, self._watched, self._config.node.device_files, pause_s)
            aside.append(asyncio.create_task(watching, name="watch"))
        done, _ = await asyncio.wait({talking, lingering, living}, return_when=asyncio.FIRST_COMPLETED)
        for task in (talking, lingering, living, *aside):
            task.cancel()
        for task in done:
            task.result()

    async def _linger(self) -> None:
        limit = self._config.linger_s
        if limit is None:
            await asyncio.get_running_loop().create_future()
            return
        while True:
            await asyncio.sleep(min(limit, LINGER_CHECK_S))
            if not self._alone_for(limit):
                continue
            _log.warning("no service for %.0f s: everything is checkpointed and stopped", limit)
            unfinished = self._give_notice(time.time() + self._config.grace_s, ALONE)
            tasks = [item.task for item in unfinished if item.task is not None]
            if tasks:
                await asyncio.wait(tasks, timeout=self._config.grace_s + 30.0)
            if self._alone_for(limit):
                return

    def _give_notice(self, deadline_s: float, text: str) -> list[Supervised]:
        unfinished = [item for item in self._live.values() if not item.finished]
        for item in unfinished:
            self._tell(item, "preempt", {"deadline_s": deadline_s, "text": text})
        return unfinished

    def leave(self, deadline_s: float, text: str) -> None:
        """Have all that runs saved and ended by then (Unix seconds), and start nothing any more."""
        self._leaving = True
        self._give_notice(deadline_s, text)

    def say(self, key: tuple[str, int], kind: str, body: dict[str, Any]) -> None:
        """Report what is true without any supervisor: the end of what never ran here, or runs no more."""
        self._outbox.add(*key, kind, body, time.time(), lambda: self._life.ended(key, kind, body))

    def unsaid(self) -> list[dict[str, Any]]:
        """What the service has not acknowledged, as reports in their order."""
        return self._outbox.batch(MOST_UNSAID)

    def runs(self, key: tuple[str, int]) -> Supervised | None:
        """What is here of a workload until its last report is acknowledged."""
        return self._live.get(key)

    def _ailing(self, problems: list[str]) -> None:
        for text in sorted(set(problems) - set(self._problems)):
            _log.warning("%s", text)
        self._problems = problems

    def _in_use(self) -> dict[tuple[str, int], tuple[str, ...]]:
        return {key: item.devices for key, item in self._live.items() if not item.finished}

    def _measured(self, key: tuple[str, int], body: dict[str, Any]) -> None:
        if self._alone_since is None:  # a measure of the past is of no use to a service that comes back
            self._outbox.add(*key, "utilization", body, time.time())

    def _holders(self) -> dict[tuple[str, int], Holder]:
        live = ((key, item) for key, item in self._live.items() if item.devices and not item.finished)
        return {key: Holder(item.devices, item.tag) for key, item in live}

    def _watched(self, key: tuple[str, int], body: dict[str, Any]) -> None:
        if self._alone_since is None:  # it is told again
            self._outbox.add(*key, "gpu_use", body, time.time())

    def _alone_for(self, span_s: float) -> bool:
        return self._alone_since is not None and time.monotonic() - self._alone_since >= span_s

    async def _talk(self) -> None:
        """Say hello, then take commands and send reports; begin anew whenever either fails."""
        pause = BACKOFF_S[0]
        while True:
            who = self._config.node.name, self._config.token, self._config.kind
            calls = [ServiceCalls(self._config.state_dir, *who) for _ in range(2)]
            begun = time.monotonic()
            try:
                after = await self._hello(calls[0])
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._take_commands(calls[0], after))
                    group.create_task(self._send_reports(calls[1]))
                    group.create_task(self._look_for_a_newer())
            except* (GpufairError, ValueError, TypeError, KeyError) as group_err:  # the latter: no answer of ours
                _log.info("%s; trying again in %.1f s", group_err.exceptions[0], pause)
                self._life.unanswered(group_err.exceptions[0])
            finally:
                for call in calls:
                    call.close()
            if self._alone_since is None:
                self._alone_since = time.monotonic()
            if time.monotonic() - begun > STEADY_S:
                pause = BACKOFF_S[0]  # a service that takes a hello and nothing else is not asked ten times a second
            await asyncio.sleep(pause)
            pause = min(pause * 2, BACKOFF_S[1])

    # ---------------------------------------------------------------- the service

    async def _hello(self, calls: ServiceCalls) -> int:
        running = set(self._outbox.workloads()) | set(self._live)
        hello = AgentHello(API_VERSION, self._boot, self._config.node, tuple(sorted(running)), _version())
        answer = await calls.call("POST", "/hello", to_json(hello))
        proof = hello_proof(self._config.token, self._boot)
        if self._config.tunnel and not hmac.compare_digest(str(answer.get("proof", "")).encode(), proof.encode()):
            raise WrongService("who answered does not know this node's token; is the address that of another service?")
        self._obeyed(answer)
        self._alone_since = None
        self._life.answered()
        expected = {(str(workload), int(incarnation)) for workload, incarnation in answer.get("expected", [])}
        for key, item in self._live.items():
            if item.finished:
                continue
            if key not in expected:
                _log.warning("%s is not expected here any more; stopping it", item.folder.name)
                self._tell(item, "stop", {})
        return int(answer.get("after", 0))

    def _obeyed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer, if no newer leader has spoken.

        Raises:
            OldLeader: One has.
        """
        epoch = int(answer.get("epoch", 0))
        if epoch < self._epoch:
            raise OldLeader(epoch, self._epoch)
        self._epoch = epoch
        return answer

    async def _look_for_a_newer(self) -> None:
        """A leader that was stopped keeps its connections, and says nothing on them: the next one is found in the file.

        Raises:
            OldLeader: There is one.
        """
        while True:
            await asyncio.sleep(LEADER_CHECK_S)
            named = (read_json(self._config.state_dir / SERVICE_FILE) or {}).get("epoch")
            if isinstance(named, int) and named > self._epoch:
                raise OldLeader(self._epoch, named)

    async def _take_commands(self, calls: ServiceCalls, after: int) -> None:
        while True:
            path = f"/commands?after={after}&boot={self._boot}&wait_s={COMMAND_WAIT_S:g}"
            answer = self._obeyed(await calls.call("GET", path, wait_s=COMMAND_WAIT_S))
            for data in answer.get("commands", []):
                command = from_json(Command, data)
                if command.seq > after:
                    after = command.seq
                    try:
                        await self._carry_out(command)
                    except Exception:  # noqa: BLE001  # one workload's trouble must not end the others' agent
                        _log.exception("%s of %s failed", command.kind, command.workload)

    async def _send_reports(self, calls: ServiceCalls) -> None:
        limit = 0
        while True:
            await self._outbox.wait(HEARTBEAT_S)
            batch = self._outbox.batch(*([limit] if limit else []))
            try:
                said = {"boot": self._boot, "reports": batch, "problems": self._problems, "now_s": time.time()}
                answer = self._obeyed(await calls.call("POST", "/reports", said))
            except Refused as err:
                if err.status not in {400, 413, 422} or not batch:
                    raise
                if len(batch) == 1:
                    # Sent again it would be refused again, and hold up all that follow.
                    _log.error("the service does not take %s of %s: %s", batch[0]["kind"], batch[0]["workload"], err)
                    self._outbox.acknowledged(batch[0]["seq"])
                limit = 1
                continue
            limit = 0
            self._outbox.acknowledged(int(answer.get("acked", 0)))

    # ---------------------------------------------------------------- commands

    async def _carry_out(self, command: Command) -> None:
        key = (command.workload, command.incarnation)
        item = self._live.get(key)
        if command.kind == "start":
            if item is None:
                await self._start(command)
        elif item is not None:
            if not item.finished:
                self._tell(item, command.kind, command.args)
        elif command.kind in {"stop", "preempt"}:
            # Nothing of it is here. That is what the service waits to hear.
            self.say(key, "released", {"busy": False})

    async def _start(self, command: Command) -> None:
        key = (command.workload, command.incarnation)
        if why := self._life.refuses(command):
            self.say(key, "start_failed", {"reason": why})
            return
        if self._leaving:
            self.say(key, "released", {"busy": False})
            return
        try:
            item = await start(self._config, self._root, command, self._taken, self._reported)
        except FileExistsError:
            _log.info("%s.%d was started and finished before", *key)
        except (GpufairError, ValueError, OSError) as err:
            _log.warning("%s.%d cannot start: %s", *key, err)
            self.say(key, "start_failed", {"reason": str(err)})
        else:
            self._live[key] = item
            item.follow()

    def _taken(self) -> list[str]:
        return [gpu for item in self._live.values() if not item.finished for gpu in item.devices]

    # ---------------------------------------------------------------- reports

    def _reported(self, item: Supervised, report: dict[str, Any]) -> None:
        last = item.finished

        def acknowledged() -> None:
            item.acknowledged(report["n"])
            if last:
                item.wipe()
                self._live.pop(item.key, None)
                prune_finished(self._root, self._live)
                self._life.ended(item.key, report["kind"], report["body"])

        self._outbox.add(*item.key, report["kind"], report["body"], report["at_s"], acknowledged)

    def _tell(self, item: Supervised, kind: str, args: dict[str, Any]) -> None:
        self._names += 1
        item.tell(f"{self._boot}:{self._names}", kind, args)
        if kind == "stop":
            item.kill_after(self._config.stop_patience_s)


def _version() -> str:
    try:
        return metadata.version("jupyter-gpufair")
    except metadata.PackageNotFoundError:  # out of a folder, uninstalled
        return ""


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns the exit status: 0 after lingering, 2 for a bad config, 3 if another agent has the node."""
    parser = argparse.ArgumentParser(prog="python -m gpufair.node.agent", description="Agent of one node.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file written by the service")
    path: Path = parser.parse_args(argv).config
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        config = AgentConfig.read(path)
    except BadConfig as err:
        _log.error("%s", err)
        return 2
    folder = path.absolute().parent
    with suppress(PermissionError):  # we lead a session already
        os.setsid()
    # Whoever looks whether an agent lives holds the lock for a moment.
    for _ in range(LOCK_TRIES):
        if (lock := try_lock(folder / "agent.lock")) is not None:
            break
        time.sleep(LOCK_PAUSE_S)
    if lock is None:
        _log.error("another agent runs for node %s; it goes on and this one ends", config.node.name)
        return 3
    return asyncio.run(_main(config, folder))


async def _main(config: AgentConfig, folder: Path) -> int:
    # At once, without waiting for anything: supervisors stay, and nothing is lost that is not in their folders.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _leave)
    await Agent(config, folder).run()
    return 0


def _leave() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
