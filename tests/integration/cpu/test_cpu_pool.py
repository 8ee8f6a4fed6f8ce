"""The CPU pool against a real Dask cluster: code goes there, results come back, and what fails says so."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from gpufair import cpu
from gpufair.cpu import connection, waiting
from gpufair.cpu.errors import Cancelled, PoolLost, PoolMissing, Unpicklable, WorkerDied, WorkersGone

WAIT_S = 60.0


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """Two workers, which are given up for dead after two deaths of a task."""
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        yield cpu.connect(workers=2)
        cpu.close()


@pytest.fixture
def shell(pool: Any, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """One of its own; it makes itself ``__main__``, as in a kernel."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    made = InteractiveShell()
    made.run_line_magic("load_ext", "jupyter_gpufair.cpu")
    return made


def until(path: Path, its_end: str = "") -> None:
    """Wait for a file, and for its last characters where another program takes its time to write it."""
    end = time.monotonic() + WAIT_S
    while not (path.exists() and path.read_text().rstrip().endswith(its_end)):
        assert time.monotonic() < end, f"{path.name} never appeared"
        time.sleep(0.02)


def test_functions_go_and_results_come_back(pool: Any) -> None:
    """The whole way, with results that stay in the pool between two tasks."""
    factor = 3
    tasks = cpu.map(lambda number: number * factor, range(5))
    assert cpu.gather(tasks) == [0, 3, 6, 9, 12]
    assert cpu.submit(sum, tasks).result() == 30
    assert cpu.submit(os.getpid).result() != os.getpid()
    doubled = cpu.submit(lambda array: array * 2, np.arange(300_000)).result()
    doubled[0] = 7  # what came back is one's own
    assert doubled[-1] == 599_998


def test_an_error_brings_what_its_worker_said(pool: Any) -> None:
    """The cause is on another machine, where nobody looks."""

    def fails() -> None:
        print("loading")
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column") as caught:
        cpu.submit(fails).result()
    said = "\n".join(caught.value.__notes__)
    assert "in fails" in said
    assert "loading" in said


def test_edited_code_runs_as_it_is_now(pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's workers would go on with the module that they imported first."""
    file = tmp_path / "edited_model.py"
    file.write_text("def answer():\n    return 'old'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("edited_model")
    assert cpu.gather([cpu.submit(module.answer) for _ in range(4)]) == ["old"] * 4
    file.write_text("def answer():\n    return 'edited'\n")
    importlib.invalidate_caches()
    module = importlib.reload(module)
    assert cpu.gather([cpu.submit(module.answer) for _ in range(4)]) == ["edited"] * 4
    monkeypatch.delitem(sys.modules, "edited_model")


def test_what_cannot_travel_is_named(pool: Any) -> None:
    """Both ways."""
    with pytest.raises(Unpicklable, match="argument 2 of print"):
        cpu.submit(print, 1, threading.Lock())
    with pytest.raises(Unpicklable, match="the result"):
        cpu.submit(threading.Lock).result()


def test_a_large_argument_warns(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent all the same."""
    monkeypatch.setattr(pool, "warn_bytes", 1_000_000)
    with pytest.warns(UserWarning, match="len sends 8 MB"):
        assert cpu.submit(len, np.zeros(1_000_000)).result() == 1_000_000


def test_a_large_cell_says_so_in_one_line(pool: Any, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With its largest variables, and no line of ours as the place."""
    monkeypatch.setattr(pool, "warn_bytes", 1_000_000)
    shell.user_ns["big"] = np.zeros(1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shell.run_cell("%%cpu\nlen(big)").raise_error()
    told = capsys.readouterr().err
    assert told.startswith("this cell sends 8 MB")
    assert told.endswith("The largest variables: big 8 MB\n")
    assert told.count("\n") == 1


def test_what_makes_no_sense_is_refused_in_words(pool: Any) -> None:
    """And the pool in use stays."""
    with pytest.raises(TypeError, match=r"submit\(f, x\)"):
        cpu.submit(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        cpu.gather([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="workers is 0"):
        cpu.connect(workers=0)
    assert cpu.submit(len, "abc").pool is pool


def test_an_address_that_cannot_be_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an error of Dask's."""
    monkeypatch.setattr(connection, "close", lambda: None)  # what the other tests use
    for address, told in (("nonsense", "tls://host"), ("tls://127.0.0.1:1", "needs certificates; give security=")):
        with pytest.raises(PoolMissing, match=told):
            cpu.connect(address)


def test_a_cell_takes_what_it_reads_and_brings_what_it_assigns(shell: InteractiveShell, capsys: Any) -> None:
    """And its last expression is shown, its functions see the notebook's variables."""
    shell.run_cell("rate, untouched, old = 2, object(), 1\ndef price(n):\n    return n * rate")
    done = shell.run_cell("%%cpu\nimport math\nrate = 10\ntotal = price(4)\ndef again():\n    return rate + 1\ndel old\nprint('there')\nmath.floor(total)")
    done.raise_error()
    assert done.result == 40
    assert "there" in capsys.readouterr().out
    names = shell.user_ns
    assert (names["rate"], names["total"], names["math"]) == (10, 40, importlib.import_module("math"))
    assert "old" not in names
    names["rate"] = 5
    assert names["again"]() == 6, "it lives in the notebook, not in a copy of it"


def test_a_cell_that_fails_changes_nothing(shell: InteractiveShell, capsys: Any) -> None:
    """A half of its variables would be neither the old state nor the new."""
    shell.run_cell("a = 1")
    done = shell.run_cell("%%cpu\na = 2\nprint('before')\n1 / 0")
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    shown = capsys.readouterr()
    assert shell.user_ns["a"] == 1
    assert "before" in shown.out
    assert shown.out.count("ZeroDivisionError: division by zero") == 1, shown.out
    assert "1 / 0" in shown.out, "the line that failed is shown"
    assert "gpufair/cpu" not in shown.out + shown.err, "no line of ours"
    for source, told in (("!ls", "get_ipython"), ("guard.acquire()", "guard"), ("left = (n for n in 'ab')", "left")):
        shell.run_cell("import threading\nguard = threading.Lock()")
        done = shell.run_cell(f"%%cpu\n{source}")
        assert isinstance(done.error_in_exec, UsageError)
        assert told in str(done.error_in_exec)


def test_a_cell_may_await(shell: InteractiveShell) -> None:
    """As in the notebook, in its last expression too."""
    done = shell.run_cell("%%cpu\nimport asyncio\nawait asyncio.sleep(0)\nasync def f():\n    print('here')\n    return 3\nw = await f()\nawait f() + w")
    done.raise_error()
    assert (done.result, shell.user_ns["w"]) == (6, 3)


def test_a_cell_that_is_no_python_says_where_and_an_empty_one_what_it_is(shell: InteractiveShell, capsys: Any) -> None:
    """Without a traceback through the magic."""
    done = shell.run_cell("%%cpu\nx = 1\ndef f(:")
    assert isinstance(done.error_in_exec, UsageError)
    told = str(done.error_in_exec)
    for part in ("line 2", "def f(:", "SyntaxError"):
        assert part in told
    for source, told in (("%%cpu", "the cell body is empty"), ("%%cpu\n \n", "first line"), ("%cpu 3", "first line")):
        done = shell.run_cell(source)
        assert isinstance(done.error_in_exec, UsageError)
        assert told in str(done.error_in_exec), source
    assert "run_cell_magic" not in capsys.readouterr().out


def test_an_interrupt_stops_the_task_where_it_runs(pool: Any, tmp_path: Path) -> None:
    """Dask alone forgets a running task, which then keeps its core."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def long() -> None:
        begun.touch()
        try:
            for _ in range(6_000):
                time.sleep(0.01)
        finally:
            ended.touch()

    task = cpu.submit(long)
    until(begun)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            task.result()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, handler)
    until(ended)
    with pytest.raises(Cancelled, match="long was cancelled"):
        task.result()


def test_a_killed_worker_costs_a_second_try_and_no_more_than_that(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One death is bad luck; a task that kills each worker ends, with the reason."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def dies_once() -> str:
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert cpu.submit(dies_once).result() == "done"
    InteractiveShell().reset(new_session=False)  # what %reset leaves of __main__ must do for a new worker
    with pytest.raises(WorkerDied, match="tried 2 times"):
        cpu.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()
    assert cpu.submit(len, "abc").result() == 3, "the pool goes on"


def test_a_busy_pool_says_how_many_are_ahead(pool: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Silence looks like a hang. Own tasks that run are no reason to say anything."""
    monkeypatch.setattr(waiting, "TELL_S", 0.2)
    cpu.submit(time.sleep, 2).result()
    assert "waits" not in capsys.readouterr().err

    def long(_: int) -> None:
        for _ in range(6_000):
            time.sleep(0.01)

    others = cpu.map(long, range(3))
    task = cpu.submit(len, "abc")
    timer = threading.Timer(3, pool.cancel, [others])
    timer.start()
    assert task.result() == 3
    timer.join()
    told = capsys.readouterr().err
    assert told.count("\n") == 1, "once"
    assert "all its 2 workers are busy, and 3 tasks are ahead" in told


@contextmanager
def scheduler_of_its_own(folder: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], str]]:
    """``dask scheduler`` and one worker, as an operator starts them."""
    file = folder / "scheduler.json"
    common = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    commands = [
        [*common, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
        [*common, "worker", "--no-nanny", "--no-dashboard", "--nthreads", "1", "--scheduler-file", str(file)],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(subprocess.Popen(commands[0], **quiet))  # type: ignore[call-overload]
        until(file, its_end="}")
        started.append(subprocess.Popen(commands[1], **quiet))  # type: ignore[call-overload]
        yield started, json.loads(file.read_text())["address"]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_pool_that_lost_its_workers_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The scheduler would wait for ever. (After the tests of the shared pool, which this replaces.)"""
    monkeypatch.setattr(waiting, "TELL_S", 0.2)
    with scheduler_of_its_own(tmp_path) as ((_, worker), address):
        connected = cpu.connect(address, workers_wait_s=1.5)
        assert connected.submit(len, "abc").result() == 3
        worker.kill()
        task = connected.submit(len, "abc")
        with pytest.raises(WorkersGone, match="lost all its workers"):
            task.result()
        assert "has no workers" in capsys.readouterr().err
        with pytest.raises(Cancelled):
            task.result()
        # One that never had any, as one that is still starting, is waited for.
        connected = cpu.connect(address, workers_wait_s=0.5)
        timer = threading.Timer(4, signal.raise_signal, [signal.SIGINT])
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            task = connected.submit(len, "abc")
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                task.result()
        finally:
            timer.join()
            signal.signal(signal.SIGINT, handler)
        assert "has no workers" in capsys.readouterr().err
        with pytest.raises(Cancelled):
            task.result()


@pytest.mark.slow
def test_a_killed_scheduler_is_told_and_a_new_pool_goes_on(tmp_path: Path) -> None:
    """Waiting for ever would be the other way. (After the tests of the shared pool, which this replaces.)"""
    with scheduler_of_its_own(tmp_path) as ((process, _), address):
        connected = cpu.connect(address)
        assert connected.submit(len, "abc").result() == 3
        task = connected.submit(time.sleep, 60)
        process.kill()
        begun = time.monotonic()
        with pytest.raises(PoolLost, match="connect"):
            task.result()
        assert time.monotonic() - begun < 20
        with pytest.raises(PoolMissing, match="no Dask scheduler answers"):
            cpu.connect(address)
