"""`anabranch bench orders`: what it makes of its input and of what runs have done, without running anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.bench.machine import Machine
from anabranch.bench.orders import OrdersOptions, OrdersResult, Started, _intermediate
from anabranch.errors import ConfigError
from anabranch.observe.progress import OperatorProgress, Progress, Totals

OPTIONS = OrdersOptions(work=Path("work"), rows=100, batches=6, window=2, last=2)
MACHINE = Machine("2026-01-01", 2, 1 << 30, 0.1, "3.11", "4.3")
BEST = Started("A ((B C) D)", (2.0, 2.0, 1.0, 1.0, 1.0, 1.0), (9, 9, 10, 10, 10, 10), 77, (), "A ((B C) D)")
WORST = replace(
    BEST,
    started="((A B) C) D",
    seconds=(4.0, 4.0, 4.0, 2.0, 1.0, 1.5),
    intermediate=(90, 90, 95, 12, 11, 11),
    migrated=((3, "A ((B C) D)"),),
)


def test_a_row_meets_many_of_the_next_stream_on_the_first_key_and_few_on_the_others() -> None:
    setting = OPTIONS.setting
    kept = setting.rate("B") * setting.window / 1_000
    assert [round(kept * setting.selectivity(key), 1) for key in ("ab", "bc", "cd")] == [8.0, 0.5, 0.5]
    assert len(setting.streams(1_000)["C"].between(0, 1_000)) == OPTIONS.rows


def test_the_last_batches_of_both_are_compared() -> None:
    result = OrdersResult(OPTIONS, MACHINE, {"worst": WORST, "best": BEST}, 77)
    assert result.intermediate_ratio == pytest.approx(1.1)
    assert result.throughput_ratio == pytest.approx(2.0 / 2.5)
    assert result.hold
    assert not replace(result, runs={"worst": replace(WORST, intermediate=(12,) * 6), "best": BEST}).hold
    assert not replace(result, expected=78).hold


def test_intermediate_rows_are_those_for_other_joins_without_the_shadow() -> None:
    names = ["join of A, B", "join of A, B, C", "join of A, B, C, D", "join of :B, :C"]
    operators = tuple(OperatorProgress(name, 0, 10**n, 0.0) for n, name in enumerate(names))
    totals = Totals(0, {}, {}, {}, {}, 0)
    assert _intermediate(Progress(1, (), (), 0, totals, (), operators)) == 11


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"last": 7}])
def test_what_cannot_be_run_is_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="bench orders"):
        replace(OPTIONS, **wrong)
