"""What it takes to decide: counted in calls of functions, since how long these take depends on the machine."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from anabranch.manager.policies.adaptive import Adaptive
from tests.manager.arbitration.model import Model, even


def calls(processors: int, groups: int, rows: int) -> float:
    """The calls of Python functions for a decision, on average of ten after the first ones."""
    counted = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event == "call"

    cluster = Model(
        Adaptive(), even(groups, processors), [1000.0] * processors, [rows] * groups, [1 << 40] * processors
    )
    cluster.run(6)
    decide = cluster.policy.decide
    for _ in range(10):
        shown: list[Any] = []
        cluster.policy = Recorder(shown)  # type: ignore[assignment]
        cluster.step()
        sys.setprofile(count)
        try:
            list(decide(shown[0]))
        finally:
            sys.setprofile(None)
    return counted / 10


class Recorder:
    """Keeps what a policy would have been shown."""

    def __init__(self, shown: list[Any]) -> None:
        self._shown = shown

    def decide(self, snapshot: Any) -> list[Any]:
        self._shown.append(snapshot)
        return []

    def tell(self, done: Any) -> list[Any]:
        return []


def test_to_decide_for_four_processors_with_256_groups_takes_a_few_thousand_calls_however_many_rows_there_are() -> None:
    few, many = calls(4, 256, rows=10), calls(4, 256, rows=100_000)
    assert many < 8_000, "a call takes less than a microsecond, and a batch a second"
    assert many < 1.1 * few


def test_to_decide_takes_in_proportion_to_processors_and_hardly_more_for_more_groups() -> None:
    assert calls(8, 256, rows=10) < 2.5 * calls(4, 256, rows=10)
    assert calls(4, 1024, rows=10) < 4 * calls(4, 256, rows=10)
