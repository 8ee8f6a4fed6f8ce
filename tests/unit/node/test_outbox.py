"""Reports leave in order and are forgotten only when the service has them."""

import asyncio
from functools import partial

from gpufair.node.outbox import Outbox


async def test_reports_stay_until_acknowledged_and_in_order():
    box = Outbox()
    done: list[str] = []
    for n, kind in enumerate(["serving", "activity", "released"], 1):
        box.add("w", 1, kind, {}, float(n), partial(done.append, kind))
    assert [(r["seq"], r["kind"]) for r in box.batch()] == [(1, "serving"), (2, "activity"), (3, "released")]
    assert [r["seq"] for r in box.batch(2)] == [1, 2]
    box.acknowledged(2)
    assert done == ["serving", "activity"]
    assert [r["seq"] for r in box.batch()] == [3]
    assert box.workloads() == {("w", 1)}
    box.acknowledged(1)  # an old answer
    assert len(box.batch()) == 1
    box.acknowledged(3)
    assert box.batch() == []
    assert box.workloads() == set()


async def test_waiting_ends_with_a_report_or_the_time():
    box = Outbox()
    await box.wait(0.01)  # the time
    waiting = asyncio.create_task(box.wait(30.0))
    await asyncio.sleep(0)
    box.add("w", 1, "serving", {}, 0.0)
    await asyncio.wait_for(waiting, 5.0)
