"""A batch program that leaves proof of each of its runs: ``job.py FOLDER SECONDS``.

What it notes is appended to ``FOLDER/WORKLOAD.jsonl``, a line for each event. That two runs overlap, or that two have one
GPU, it sees by locks, which a process holds to the very moment of its death: ``gpu.*`` of each GPU and one for each run.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TRIES, PAUSE_S = 50, 0.01  # who only looks at a lock has it for less


def take(path: Path) -> bool:
    """Hold a lock for life; false: another process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_S)
        else:
            return True
    return False


def held(path: Path) -> bool:
    """Whether a living process holds a lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def main() -> None:
    """Run for so long, with a child in a session of its own, which has to go with us."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    workload, incarnation = os.environ["GPUFAIR_WORKLOAD"], int(os.environ["GPUFAIR_INCARNATION"])
    rank, node = int(os.environ.get("GPUFAIR_NODE_RANK", "0")), os.environ["GPUFAIR_NODE"]

    def note(event: str, **more: object) -> None:
        line = {"event": event, "incarnation": incarnation, "rank": rank, "node": node, "at_s": time.time(), **more}
        notes = os.open(folder / f"{workload}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(notes, json.dumps(line).encode() + b"\n")  # in one piece
        os.close(notes)

    note("begin", pid=os.getpid())
    if not take(folder / f"{workload}.{incarnation}.{rank}.lock"):
        note("twice")
    for other in folder.glob(f"{workload}.*.lock"):
        if other.name.split(".")[1] != str(incarnation) and held(other):
            note("overlap", other=other.name)
    for gpu in filter(None, os.environ.get("GPUFAIR_GPUS", "").split(",")):
        if not take(folder / f"gpu.{node}.{gpu}.lock"):
            note("shared", gpu=gpu)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(seconds)
    note("end")


if __name__ == "__main__":
    main()
