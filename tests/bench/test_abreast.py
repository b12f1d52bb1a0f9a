"""Variants abreast: one works at a time, everybody as often as the others, and nobody is left waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anabranch.bench.experiments.abreast import Turnstile


def run_all(*participants: Callable[[], None]) -> None:
    threads = [threading.Thread(target=one, daemon=True) for one in participants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "somebody still waits"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_works_at_a_time_in_an_order_that_goes_there_and_back(count: int) -> None:
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
    there = list(range(count))
    assert worked == [*there, *reversed(there)] * 2
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
