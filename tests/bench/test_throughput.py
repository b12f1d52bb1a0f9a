"""The arithmetic of `bench throughput`, without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from anabranch.bench.contenders.child import Measurement
from anabranch.bench.contenders.job import Batch, Job, Outcome
from anabranch.bench.contenders.memory import MemoryPeak
from anabranch.bench.machine import Machine
from anabranch.bench.raw_results import as_json
from anabranch.bench.throughput import (
    ThroughputOptions,
    ThroughputResult,
    check_agreement,
    ratios,
    summarise,
    table,
)
from anabranch.errors import BenchmarkError, ConfigError


def measured(
    seconds: float = 10.0, batch: int = 1000, memory: int = 100, results: int = 7, checksum: str | None = None
) -> Measurement:
    batches = (Batch(300, 9000), Batch(300, 5000), Batch(300, batch), Batch(300, batch), Batch(0, 99_999))
    return Measurement(Outcome(seconds, batches, results, checksum), MemoryPeak(memory, memory, 0))


def test_steady_state_leaves_out_the_first_two_batches_and_batches_without_input() -> None:
    outcome = measured(batch=600).outcome
    assert outcome.steady_milliseconds == 600
    assert outcome.steady_rows_per_second == 500
    assert outcome.rows_per_second == 120


@pytest.mark.parametrize(("batches", "steady"), [(1, 1000.0), (2, 900.0), (3, 800.0), (4, 750.0)])
def test_a_short_run_still_has_a_steady_state(batches: int, steady: float) -> None:
    times = (1000, 900, 800, 700)[:batches]
    outcome = Outcome(1.0, tuple(Batch(10, time) for time in times), 0)
    assert outcome.steady_milliseconds == steady


def test_a_run_without_input_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="read no rows"):
        _ = Outcome(1.0, (Batch(0, 10),), 0).steady_milliseconds


def test_numbers_are_medians_over_the_repeats() -> None:
    runs = [measured(seconds=s, memory=m) for s, m in ((10.0, 5), (40.0, 7), (20.0, 6))]
    summary = summarise("spark", runs)
    assert (summary.total_seconds, summary.total_rows_per_second, summary.peak_memory) == (20.0, 60.0, 6)


def test_ratios_say_how_many_times_better_anabranch_is() -> None:
    ours = summarise("anabranch", [measured(seconds=2.0, batch=100, memory=100)])
    peer = summarise("spark", [measured(seconds=10.0, batch=800, memory=250)])
    (ratio,) = ratios([peer, ours])
    assert (ratio.against, ratio.total, ratio.steady, ratio.memory) == ("spark", 5.0, 8.0, 2.5)


def test_without_anabranch_there_are_no_ratios() -> None:
    assert ratios([summarise("spark", [measured()])]) == ()


def test_agreeing_contenders_pass() -> None:
    check_agreement({"anabranch": [measured(), measured()], "spark": [measured()]}, expected=7)


def test_a_contender_with_another_count_is_named() -> None:
    with pytest.raises(BenchmarkError, match=r"expected 7 .* anabranch: 7; spark: 6, 7"):
        check_agreement({"anabranch": [measured()], "spark": [measured(), measured(results=6)]}, expected=7)


def test_contenders_that_agree_on_a_wrong_count_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="expected 8"):
        check_agreement({"anabranch": [measured()], "spark": [measured()]}, expected=8)


def test_equally_many_but_different_results_are_refused() -> None:
    runs = {"anabranch": [measured(checksum="1")], "spark": [measured(checksum="2")]}
    with pytest.raises(BenchmarkError, match="not the same"):
        check_agreement(runs, expected=7)


def test_jobs_and_outcomes_survive_the_way_through_json() -> None:
    job = Job(contender="spark", input="i", scratch="s", streams=("A", "B"), window=3)
    assert Job.from_json(job.to_json()) == job
    outcome = measured(checksum="12").outcome
    assert Outcome.from_json(outcome.to_json()) == outcome


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"streams": 9}, "streams must be 2 to 8"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"window": 0}, "window must be"),
        ({"sink": "nop"}, "did you mean 'noop'"),
        ({"contenders": ("sprak",)}, "did you mean 'spark'"),
        ({"contenders": ()}, "at least one"),
    ],
)
def test_impossible_options_are_refused_at_once(option: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ThroughputOptions(work=Path("unused"), **option)  # type: ignore[arg-type]


def test_rows_per_batch_are_of_all_streams_together() -> None:
    options = ThroughputOptions(work=Path("unused"), rows=1_000_000, streams=3, rows_per_batch=300_000)
    assert options.recipe.batch_count == 10


def test_the_result_renders_as_json_and_as_a_table() -> None:
    contenders = (summarise("anabranch", [measured(batch=100)]), summarise("spark", [measured(batch=800)]))
    machine = Machine("2026-01-01", 2, 2**34, 0.0, "3.11", "4.3")
    options = ThroughputOptions(work=Path("unused"))
    result = ThroughputResult(options, machine, 1200, 4, contenders, ratios(contenders))
    fields = json.loads(as_json(result))
    assert fields["ratios"][0]["steady"] == 8.0
    assert len(fields["contenders"][0]["runs"][0]["outcome"]["batches"]) == 5
    console = Console(width=200, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table(result))
    assert "8.0x" in captured.get()
