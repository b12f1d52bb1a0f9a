"""The gate before the steps of a run."""

from __future__ import annotations

import threading

import pytest

from anabranch.runtime.driver.gate import Gate, StoppedError


def test_a_batch_that_comes_after_the_gate_is_closed_is_held_until_spark_has_stopped() -> None:
    gate, stopped, left = Gate(), threading.Event(), threading.Event()
    gate.is_stopped = stopped.is_set
    assert gate.close()

    def come() -> None:
        with pytest.raises(StoppedError), gate.batch():
            raise AssertionError("no work is done")
        left.set()

    batch = threading.Thread(target=come)
    batch.start()
    assert not left.wait(0.1)
    with gate.step():
        pass  # what is held keeps nobody else from making a step
    stopped.set()
    assert left.wait(10)
    batch.join()


def test_who_closes_the_gate_waits_for_the_step_under_way_but_not_for_ever() -> None:
    gate, inside, done = Gate(), threading.Event(), threading.Event()

    def work() -> None:
        with gate.batch():
            assert gate.is_mine
            inside.set()
            done.wait(10)

    step = threading.Thread(target=work)
    step.start()
    assert inside.wait(10)
    assert gate.is_busy
    assert not gate.is_mine
    assert not gate.close(0.05)
    done.set()
    assert gate.close(10)
    step.join()


class SpeechlessError(Exception):
    """As an error of Py4J whose JVM is gone."""

    def __str__(self) -> str:
        raise RuntimeError("no JVM")


@pytest.mark.parametrize(
    ("error", "cancelled"),
    [
        (RuntimeError("Job 5 cancelled as part of cancellation of all jobs"), True),
        (RuntimeError("Job 5 failed"), False),
        (SpeechlessError(), False),
    ],
)
def test_after_all_jobs_were_cancelled_no_batch_follows(error: Exception, cancelled: bool) -> None:
    gate = Gate()
    assert gate.fails_by_cancellation(error) is cancelled
    assert gate.closed is cancelled
