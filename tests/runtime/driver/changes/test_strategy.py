"""The strategy that is left to us goes by constants that were measured, and by what the run's own steps have taken."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.plan.orders.migration_choice import Prediction
from anabranch.plan.orders.migration_cost import Constants
from anabranch.runtime.driver.changes import strategy
from anabranch.runtime.driver.changes.strategy import TELLING_ROWS, best_strategy, capacity_of, kernel_constants
from anabranch.runtime.driver.step.result import StepResult
from anabranch.state.report import Report
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABC"}
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
KERNELS = Constants(join=1e-6, insert=3e-6)


def step(rows: int, made: int, cpu: float, seconds: float, now: float = 0.0) -> StepResult:
    report = Report.empty(0, 1, 1, 1)
    report.worked, report.produced, report.operator_cpu_ms = [rows], [made], [1000 * cpu]
    return StepResult(0, 1, (report,), {}, (), (), (), seconds=seconds, time=now)


def test_without_steps_kernels_alone_say_how_long_rows_take() -> None:
    capacity = capacity_of([], KERNELS, 2)
    assert (capacity.constants, capacity.lanes, capacity.strain, capacity.step) == (KERNELS, 2, 1.0, 0.0)
    assert capacity.spare == strategy.USUAL_SPARE


def test_large_steps_say_how_much_longer_than_in_kernels_rows_take_and_small_ones_do_not() -> None:
    # Its rows take kernels (1 + 1) * 20,000 us + 3 * 20,000 us = 0.1 s.
    large = step(TELLING_ROWS, TELLING_ROWS, cpu=0.5, seconds=0.9)
    small = step(10, 0, cpu=9.0, seconds=9.5)
    capacity = capacity_of([small, large], KERNELS, 2)
    assert capacity.strain == pytest.approx(5.0)
    assert capacity.step == pytest.approx(0.9 - 0.5 / 2), "what the larger step took besides, on two lanes"
    assert capacity_of([small], KERNELS, 2).strain == 1.0
    assert (
        capacity_of([replace(large, reports=(replace(large.reports[0], operator_cpu_ms=[1.0]),))], KERNELS, 1).strain
        == 1.0
    )


def test_a_pause_that_is_no_longer_than_a_batch_is_none() -> None:
    moving = Prediction("moving-state", 3.0, 3.0, 10.0, 5.0)
    background = Prediction("background", 0.0, 9.0, 10.0, 5.0)
    possible = {one.strategy: one for one in (moving, background)}
    assert best_strategy(possible, "latency", [step(10, 0, 0.0, 4.0)] * 3) == "moving-state"
    assert best_strategy(possible, "latency", [step(10, 0, 0.0, 1.5)] * 3) == "background"
    assert best_strategy(possible, "latency", []) == "background"


def test_batches_leave_the_time_between_them() -> None:
    steps = [step(10, 0, 0.0, 1.0, now=now) for now in (0.0, 4.0, 8.0)]
    assert capacity_of(steps, KERNELS, 1).spare == pytest.approx(0.75)


def test_constants_are_measured_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_constants() is kernel_constants()
    measured = []
    monkeypatch.setattr(strategy, "measured_constants", lambda clock: measured.append(clock) or KERNELS)
    kernel_constants.cache_clear()
    try:
        assert kernel_constants() is kernel_constants() is KERNELS
        assert len(measured) == 1
    finally:
        kernel_constants.cache_clear()


@pytest.mark.spark
def test_auto_moves_state_at_once_where_rows_take_no_time_and_in_pieces_where_they_take_long(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)

    def rows() -> dict[str, pa.Table]:
        columns = [[chance.randrange(9) for _ in range(30)] for _ in SCHEMA.names]
        return {name: pa.table(columns, schema=SCHEMA) for name in KINDS}

    fed = []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", processors=1) as steps:
        for order, constants, chosen in [
            ("A (B C)", Constants(1e-9, 1e-9), "moving-state"),
            ("(A B) C", Constants(1e-9, 1.0), "background"),
            ("A (B C)", Constants(1.0, 1e-9), "background"),
        ]:
            fed.append(rows())
            steps.feed(fed[-1])
            monkeypatch.setattr(strategy, "kernel_constants", lambda constants=constants: constants)
            migration = steps.public.migrate(order)
            assert migration.strategy == chosen
            for _ in range(6):
                if migration.phase == "filling":
                    fed.append(rows())
                    steps.feed(fed[-1])
            assert migration.await_done(0)
        events = [event.details for event in steps.public.events if event.kind == "migrate"]
        answer = steps.answer
    (quick, stored, joined) = (event["predicted_seconds"] for event in events)
    assert quick < 30 < 60 < stored < joined, "more rows are joined than stored"
    assert [event["predicted_silence"] for event in events[1:]] == [0.0, 0.0]
    complete = {name: pa.concat_tables([batch[name] for batch in fed]) for name in KINDS}
    assert_same_rows(answer, query(CHAIN, complete))
