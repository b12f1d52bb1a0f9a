"""The constants of the cost model come from kernels at work, and from nothing else."""

from __future__ import annotations

import time
from itertools import count

import pytest

from anabranch.kernel import constants
from anabranch.kernel.constants import measured_constants


def test_constants_are_seconds_per_row_by_the_clock_that_is_given() -> None:
    ticks = count()
    measured = measured_constants(lambda: float(next(ticks)))
    assert measured.insert == 1 / constants.ROWS, "a tick for all rows"
    assert 1 / (5 * constants.ROWS) < measured.join < 1 / constants.ROWS, "and for those that are made of them"


def test_the_shortest_of_some_repetitions_counts() -> None:
    times = iter([0.0, 9.0, 10.0, 11.0, 20.0, 27.0, 30.0, 39.0, 40.0, 49.0, 50.0, 52.0])
    measured = measured_constants(lambda: next(times))
    assert measured.insert == 1 / constants.ROWS
    assert measured.join < 2 / constants.ROWS


def test_a_clock_that_stands_still_makes_no_work_free() -> None:
    measured = measured_constants(lambda: 7.0)
    assert measured.join > 0
    assert measured.insert > 0


def test_work_on_this_machine_takes_some_time_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ROWS", 5_000)
    measured = measured_constants(time.perf_counter)
    assert 1e-10 < measured.join < 1e-3
    assert 1e-10 < measured.insert < 1e-3
