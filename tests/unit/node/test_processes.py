"""All processes of a workload end, and no other."""

import os
import secrets
import signal
import subprocess
import sys
import time

import pytest

from gpufair.node.processes import TAG, Proc, alive, death_signal, end_all, find, identify, send

# A child in the session, one that left it, and one that ignores SIGTERM; then it says that all are there.
FAMILY = """
import subprocess, sys, signal, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"])
time.sleep(600)
"""


@pytest.fixture
def tag():
    value = secrets.token_hex(16)
    yield value
    for process in find(None, value):
        send(process, signal.SIGKILL)


def _family(tag):
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], env={**os.environ, TAG: tag}, start_new_session=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"deaf\n"
    deadline = time.monotonic() + 10
    while len(find(process.pid, tag)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


# The second one: a program that needs longer to save than what a killed process has to disappear in.
@pytest.mark.parametrize(("patience_s", "limit_s"), [(0.1, 15.0), (1.5, 1.4)])
def test_all_descendants_end_also_those_that_left_the_session_or_are_deaf(tag, patience_s, limit_s):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process = _family(tag)
    try:
        ended = end_all(process.pid, tag, patience_s=patience_s, limit_s=limit_s)
        assert len(ended) == 4
        process.wait(5)
        process.stdout.close()
        assert not find(process.pid, tag)
        assert not [one for one in ended if alive(one)]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_reused_id_is_never_signalled():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        real = identify(process.pid)
        assert real is not None
        send(Proc(process.pid, real.started - 1), signal.SIGKILL)  # the id, but of a process that was there before
        assert alive(real)
        assert not alive(Proc(process.pid, real.started - 1))
        send(real, signal.SIGKILL)
        assert process.wait(5) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    assert identify(process.pid) is None


def test_a_child_dies_with_a_killed_parent(tag):
    code = (
        "import subprocess, sys, time\n"
        "from gpufair.node.processes import death_signal\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], preexec_fn=death_signal(), start_new_session=True)\n"
        "print(c.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, TAG: tag})
    assert parent.stdout is not None
    child = identify(int(parent.stdout.readline()))
    assert child is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert callable(death_signal())
