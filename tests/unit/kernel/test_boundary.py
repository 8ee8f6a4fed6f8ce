"""Jobs run between cells only, once or not at all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from jupyter_gpufair.kernel.boundary import Boundary, Job


def _job(log: list[str], name: str = "job") -> Job:
    return Job(lambda: log.append(name), lambda _: log.append(f"{name} told"))


def test_a_job_runs_when_no_cell_does() -> None:
    boundary, log = Boundary(), list[str]()
    boundary.submit(_job(log))
    with boundary.cell():
        assert boundary.busy
        boundary.run_jobs()
        assert log == []
    boundary.run_jobs()
    assert log == ["job", "job told"]
    boundary.run_jobs()
    assert len(log) == 2


def test_a_cell_in_a_subshell_counts_as_well() -> None:
    boundary, log = Boundary(), list[str]()
    inside, leave = threading.Event(), threading.Event()

    def cell() -> None:
        with boundary.cell():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=cell)
    thread.start()
    assert inside.wait(10)
    boundary.submit(_job(log))
    with boundary.cell():
        pass
    boundary.run_jobs()
    assert log == []
    leave.set()
    thread.join(10)
    boundary.run_jobs()
    assert log == ["job", "job told"]


def test_no_subshell_begins_a_cell_while_a_job_runs() -> None:
    boundary, order = Boundary(), list[str]()
    asked = threading.Event()

    def cell() -> None:
        asked.set()
        with boundary.cell():
            order.append("cell")

    thread = threading.Thread(target=cell)

    def work() -> None:
        thread.start()
        assert asked.wait(10)
        thread.join(0.2)  # long enough for a cell that is not held back
        order.append("job")

    boundary.submit(Job(work, lambda _: None))
    boundary.run_jobs()
    thread.join(10)
    assert order == ["job", "cell"]


def test_a_withdrawn_job_never_runs() -> None:
    boundary, log = Boundary(), list[str]()
    job = _job(log)
    boundary.submit(job)
    assert job.take()
    assert not job.take()
    boundary.run_jobs()
    assert log == []


@pytest.fixture
def handler() -> object:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_does_not_reach_a_job(handler: Callable[[], None]) -> None:
    """It is meant for a cell; inside a checkpoint it would tear that."""
    boundary, log = Boundary(), list[str]()

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        log.append("whole")

    boundary.submit(Job(work, lambda _: None))
    boundary.run_jobs()
    assert log == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
