"""Variants abreast: one works at a time, everybody as often as the others, and nobody is left waiting."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise, permutations

import pytest

from anabranch.bench.experiments.rig.abreast import Turnstile, turns


def run_all(*participants: Callable[[], None]) -> None:
    threads = [threading.Thread(target=one, daemon=True) for one in participants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "somebody still waits"


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_everybody_follows_everybody_else_equally_often_and_nobody_itself(count: int) -> None:
    order = list(islice(turns(count), 60 * count))
    assert all(sorted(order[n : n + count]) == list(range(count)) for n in range(0, len(order), count))
    assert count == 2 or set(order[::count]) == set(range(count)), "nobody is always the first of its round"
    followed = Counter(pairwise(order))
    assert set(followed) == set(permutations(range(count), 2))
    assert max(followed.values()) - min(followed.values()) <= 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_works_at_a_time_as_often_as_the_others(count: int) -> None:
    turnstile, worked, working = Turnstile(count), [], threading.Lock()

    def participant(who: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(4):
                turnstile.pass_through(who)
                assert working.acquire(blocking=False), "two work at the same time"
                worked.append(who)
                working.release()
            turnstile.leave(who)

        return work

    run_all(*map(participant, range(count)))
    assert worked == list(islice(turns(count), 4 * count))
    assert [len(seconds) for seconds in turnstile.seconds] == [4] * count


def test_the_others_go_on_when_somebody_leaves_early_or_never_comes() -> None:
    turnstile, worked = Turnstile(3), []

    def work(who: int, turns: int) -> None:
        for _ in range(turns):
            turnstile.pass_through(who)
            worked.append(who)
        turnstile.leave(who)

    run_all(lambda: work(0, 1), lambda: work(1, 0), lambda: work(2, 3))
    assert worked == [0, 2, 2, 2]


def test_nobody_waits_at_a_turnstile_that_is_closed() -> None:
    turnstile = Turnstile(2)
    waiting = threading.Thread(target=turnstile.pass_through, args=(1,), daemon=True)
    waiting.start()
    turnstile.close()
    waiting.join(10)
    assert not waiting.is_alive()
