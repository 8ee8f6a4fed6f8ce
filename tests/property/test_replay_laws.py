"""The same log gives the same decisions, byte for byte: across processes, restarts and hash seeds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.codec import decode_action, decode_event, encode
from gpufair.core.snapshot import recover, replay, restore, snapshot
from tests.strategies import Script, begin, run, scripts, step
from tests.world import World

ROOT = Path(__file__).resolve().parents[2]


def journal_text(world: World) -> str:
    """The journal as the store keeps it."""
    return "\n".join(
        json.dumps([encode(entry.event), [encode(action) for action in entry.actions]]) for entry in world.journal
    )


@given(scripts())
def test_p22_recovering_a_journal_gives_the_same_state(script: Script) -> None:
    """A restart decides nothing, and ends where the service was, to the byte."""
    world = run(script)
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert snapshot(recover(journal, policy=world.policy)) == snapshot(world.state)


@given(scripts(), st.integers(0, 200))
def test_p22_recovering_from_a_snapshot_on_gives_the_same_state(script: Script, cut: int) -> None:
    """Old journal entries can be dropped once a snapshot is taken."""
    world = run(script)
    journal = [(entry.event, entry.actions) for entry in world.journal]
    start = json.loads(json.dumps(snapshot(recover(journal[:cut], policy=world.policy))))
    assert snapshot(recover(journal[cut:], start)) == snapshot(world.state)


@given(scripts())
def test_p22_deciding_a_journal_anew_gives_the_same_decisions(script: Script) -> None:
    """Nothing but the events decides."""
    world = run(script)
    again = replay([(entry.event, entry.actions) for entry in world.journal], policy=world.policy)
    assert again.same
    assert again.events == len(world.journal)


@given(scripts(), st.integers(0, 24))
def test_p22_a_restored_state_decides_on_as_the_original(script: Script, cut: int) -> None:
    """Nothing that matters is left out of a snapshot."""
    world, other = begin(script), begin(script)
    for index, command in enumerate(script.commands):
        if index == cut:
            other.state = restore(json.loads(json.dumps(snapshot(other.state))), validate=True)
        step(world, script, command, index)
        step(other, script, command, index)
    assert journal_text(world) == journal_text(other)
    assert world.state.next_wakeup() == other.state.next_wakeup()


@given(scripts())
def test_the_journal_survives_its_writing(script: Script) -> None:
    """Every event and every action that occurs, through JSON and back."""
    for entry in run(script).journal:
        assert decode_event(json.loads(json.dumps(encode(entry.event)))) == entry.event
        for action in entry.actions:
            assert decode_action(json.loads(json.dumps(encode(action)))) == action


PROGRAM = """
import random, sys
from tests.property.test_replay_laws import digest_of_random_worlds
print(digest_of_random_worlds(int(sys.argv[1])))
"""


def digest_of_random_worlds(count: int) -> str:
    """A hash over the journals and explanations of some random worlds."""
    import random

    from tests.strategies import CLUSTERS, MACHINES, TREES, USERS, Command
    from tests.world import Delays

    digest = hashlib.sha256()
    for seed in range(count):
        draw = random.Random(seed)
        script = Script(
            tree=draw.choice(TREES),
            cluster=draw.choice(CLUSTERS),
            delays=draw.choice((Delays(), Delays(0, 0, 0), Delays(300, 200, 8_000))),
            commands=tuple(
                Command(
                    draw.choice((0, 1, 200, 1_000, 2_500)),
                    draw.choice(USERS + MACHINES),
                    draw.randrange(64),
                    draw.randrange(64),
                    draw.randrange(64),
                )
                for _ in range(60)
            ),
        )
        world = run(script, validate=False, settle_ms=5_000)
        digest.update(journal_text(world).encode())
        digest.update(json.dumps(snapshot(world.state)).encode())
        for workload in world.state.workloads():
            digest.update(repr(world.state.explain(workload.id)).encode())
    return digest.hexdigest()


def test_p22_hash_seeds_and_processes_change_nothing() -> None:
    """Sets and dicts must not leak their order into a decision."""
    digests = set()
    for seed in ("0", "1", "4242"):
        path = os.pathsep.join([str(ROOT), str(ROOT / "scheduler")])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "20"], env=environment, check=True, capture_output=True, text=True, cwd=ROOT
        )
        digests.add(done.stdout.strip())
    assert digests == {digest_of_random_worlds(20)}
