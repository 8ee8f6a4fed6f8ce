"""Laws of the order of tasks in a shared CPU pool, played with its books and threads."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpufair.cpu.turns import Charged, Whom, next_turn

LEAVES = ("a", "b", "c")


@given(
    shares=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    threads=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=7),
)
def test_the_hungry_get_their_shares(shares: list[int], threads: int, lengths: list[int]) -> None:
    """Whatever the lengths of their tasks: within what can be under way at once."""
    entitled = {leaf: Fraction(share, sum(shares)) for leaf, share in zip(LEAVES, shares, strict=False)}
    waiting = {Whom(leaf, f"user-{leaf}"): at for at, leaf in enumerate(entitled)}
    books, running = Charged(1 << 40), list[tuple[int, int, Whom]]()
    drawn = now = 0
    for _ in range(150):
        while len(running) < threads:
            charged = Counter(books.totals(now))
            for start, end, whom in running:
                charged[whom] += end - start
            turn = next_turn(waiting, charged, Counter(whom for *_, whom in running), entitled)
            assert turn is not None
            drawn += 1
            running.append((now, now + lengths[drawn % len(lengths)], turn))
        now = min(end for _, end, _ in running)
        for one in [one for one in running if one[1] == now]:
            running.remove(one)
            books.add(one[2], one[0], one[1])
    had = books.totals(now)
    total = sum(had.values())
    slack = max(lengths) * (threads + 1)
    for whom in waiting:
        assert abs(had.get(whom, 0) - entitled[whom.leaf] * total) <= slack


@given(
    waiting=st.dictionaries(st.builds(Whom, st.sampled_from([*LEAVES, ""]), st.sampled_from("xyz")), st.integers(0, 9), max_size=6),
    running=st.dictionaries(st.builds(Whom, st.sampled_from(LEAVES), st.sampled_from("xyz")), st.integers(0, 4), max_size=6),
    charged=st.dictionaries(st.builds(Whom, st.sampled_from(LEAVES), st.sampled_from("xyz")), st.integers(0, 99), max_size=6),
    quota=st.integers(0, 5),
)
def test_nobody_waits_for_a_free_thread_but_for_his_quota(
    waiting: dict[Whom, int], running: dict[Whom, int], charged: dict[Whom, int], quota: int
) -> None:
    """And the quota is never passed."""
    busy = Counter[str]()
    for whom, tasks in running.items():
        busy[whom.user] += tasks
    turn = next_turn(waiting, charged, running, {"a": Fraction(1, 2), "b": Fraction(1, 2)}, quota)
    may = {whom for whom in waiting if not quota or busy[whom.user] < quota}
    assert (turn in may) if may else (turn is None)
