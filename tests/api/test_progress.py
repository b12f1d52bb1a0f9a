"""Anabranch's part of a run's progress: counts by name, watermarks, and nothing that fills screens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from anabranch.api.progress import batches_of, groups, progress_of
from anabranch.manager.memory.memory_use import MemoryUse
from anabranch.observe.progress import as_dict
from anabranch.runtime.driver.step.result import StepResult
from anabranch.state.report import Report

GROUPS = {"join of A, B": {n: {"activeBytes": 10, "spilledBytes": 0} for n in range(256)}}


def result() -> StepResult:
    reports = []
    for processor in range(2):
        report = Report.empty(processor, 2, 1, 1)
        report.received, report.late, report.rejected = [3, 4], [1, 0], [0, 2]
        report.spilled_rows, report.spilled_bytes = 7, 70
        report.worked, report.produced, report.operator_cpu_ms = [7], [2], [1.5]
        reports.append(report)
    totals = {
        "combinations": 9,
        "results": {"pairs": 5, "alerts": None},
        "received": [60, 80],
        "late": [2, 0],
        "rejected": [0, 4],
        "late_joined": 1,
    }
    return StepResult(
        batch_id=3,
        step=4,
        reports=tuple(reports),
        output_rows={"pairs": 2, "alerts": -1},
        labels=("A", "B"),
        operators=("join of A, B",),
        newest=(1_000_000, 2_000_000),
        totals=totals,
        memory=(MemoryUse(0, None, 0, owing_groups=3, owed=20), MemoryUse(1, None, 0)),
        groups=(GROUPS, {}),
    )


def of_spark(number: int, durations: dict[str, int]) -> StreamingQueryProgress:
    told = {
        "id": "4f0ab2f4-3d5a-4b3c-9e0b-0f3a7b6c1d2e",
        "runId": "4f0ab2f4-3d5a-4b3c-9e0b-0f3a7b6c1d2e",
        "name": None,
        "timestamp": "1970-01-01T00:01:00.250Z",
        "batchId": number,
        "batchDuration": 0,
        "durationMs": durations,
        "numInputRows": 14,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
        "eventTime": {},
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "", "numOutputRows": -1},
        "observedMetrics": {},
    }
    return StreamingQueryProgress.fromJson(told)


def describe(lateness: Mapping[str, int]) -> dict[str, Any]:
    return as_dict(progress_of(result(), lateness))


def test_counts_are_dicts_by_the_name_of_the_input_or_the_query() -> None:
    told = describe({})

    assert told["totals"] == {
        "combinations": 9,
        "results": {"pairs": 5, "alerts": None},
        "received": {"A": 60, "B": 80},
        "late": {"A": 2, "B": 0},
        "rejected": {"A": 0, "B": 4},
        "late_joined": 1,
    }
    assert told["receivedRows"] == {"A": 6, "B": 8}
    assert told["lateRows"] == {"A": 2, "B": 0}
    assert told["quarantinedRows"] == {"A": 0, "B": 4}


def test_the_watermark_is_told_of_inputs_that_have_one() -> None:
    told = describe({"A": 400_000})

    assert told["newestEventTime"] == {"A": 1_000_000, "B": 2_000_000}
    assert told["watermark"] == {"A": 600_000, "B": None}


def test_what_is_spilled_and_owed_is_told_of_each_processor() -> None:
    first, second = describe({})["processors"]

    assert (first["spilledRows"], first["spilledBytes"]) == (7, 70)
    assert (first["owingGroups"], first["owedResults"]) == (3, 20)
    assert (second["owingGroups"], second["owedResults"]) == (0, 0)


def test_what_an_operator_did_is_summed_over_processors() -> None:
    expected = {"operator": "join of A, B", "rows": 14, "results": 4, "cpuMs": 3.0, "copiedRows": 0}
    assert describe({})["operators"] == [expected]


def test_after_a_later_step_totals_and_processors_are_as_they_are_then() -> None:
    batch = progress_of(result(), {})
    later = replace(
        result(), step=5, output_rows={"pairs": 3}, totals={**result().totals, "results": {"pairs": 8}}, newest=(9, 9)
    )

    shown = as_dict(batch.as_of(progress_of(later, {})))

    assert (shown["step"], shown["newestEventTime"]) == (4, {"A": 1_000_000, "B": 2_000_000})
    assert shown["totals"]["results"] == {"pairs": 8}
    assert shown["queries"] == {
        "pairs": {"numOutputRows": 2, "results": 8},
        "alerts": {"numOutputRows": -1, "results": None},
    }


def test_progress_of_an_idle_query_is_no_batch() -> None:
    batch = of_spark(3, {"triggerExecution": 500})
    idle = of_spark(4, {})

    (told,) = batches_of([batch, idle], [result()], {}, 2)

    assert (told.number, told.rows, told.started, told.seconds, told.ended) == (3, 14, 60.25, 0.5, 60.75)
    assert told.step == progress_of(result(), {})
    assert batches_of([batch, idle], [result()], {}, 3) == []


def test_progress_fits_on_a_screen_and_groups_are_told_on_request() -> None:
    assert len(json.dumps(describe({}), indent=1).splitlines()) < 110
    told = groups(result())
    assert len(told) == 256
    assert told[3] == {"processor": 0, "operator": "join of A, B", "group": 3, "activeBytes": 10, "spilledBytes": 0}
