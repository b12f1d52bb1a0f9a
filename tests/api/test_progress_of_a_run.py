"""Every key and value of Anabranch's part of a run's progress: programs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.api.test_grouping import SCHEMA
from tests.oracle.feed import Feed

pytestmark = pytest.mark.spark

COUNTS = "SELECT client, count(*) AS n FROM R [RANGE 2 SECONDS] GROUP BY client"
PAIRS = "SELECT x.client, y.bytes FROM R [RANGE 2 SECONDS] x, R y WHERE x.client = y.client"
NONE = {"R": 0, "x": 0, "y": 0}


def processor(number: int, rows: int, size: int, results: int, *, came: int) -> dict[str, Any]:
    """A processor that has spilled nothing, without what the clock says."""
    return {
        "processor": number,
        "activeRows": rows,
        "activeBytes": size,
        "spilledRows": 0,
        "spilledBytes": 0,
        "generations": 0,
        "unspillableBytes": 0,
        "owingGroups": 0,
        "owedResults": 0,
        "owedResultsAre": "about",
        "rows": came,
        "results": results,
        "heldRows": 0,
    }


def group(operator: str, **numbers: int) -> dict[str, Any]:
    """The one partition group that has state at the end."""
    return {"processor": 1, "operator": operator, "group": 2, "spilledBytes": 0, "generations": 0, **numbers}


def operators(counts: tuple[int, int], pairs: tuple[int, int]) -> list[dict[str, Any]]:
    """Rows and results of both operators, without what the clock says."""
    named = {"groups of R": counts, "join of x, y": pairs}
    return [
        {"operator": name, "rows": rows, "results": results, "copiedRows": 0} for name, (rows, results) in named.items()
    ]


def without_times(progress: dict[str, Any]) -> dict[str, Any]:
    """The part, without what the clock says."""
    ours: dict[str, Any] = progress["anabranch"]
    for entry in ours["processors"]:
        assert all(isinstance(entry.pop(name), float) for name in ("busyMs", "cpuMs", "idleMs"))
    for entry in ours["operators"]:
        assert isinstance(entry.pop("cpuMs"), float)
    assert ours.pop("diffused") == []
    manager = ours.pop("manager")
    assert manager.keys() == {"cpuMs", "reportBytes", "memoryBytes"}
    assert manager["reportBytes"] > 0
    return ours


def test_all_of_it_is_as_documented(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two queries over one stream; one of them has answers that wait for the end of the input."""
    feed = Feed(tmp_path / "R", SCHEMA)
    feed.add(client=["a", None, "b"], at=[0, 500, 3900], bytes=[1, 2, None], cost=[1, 2, 3])
    feed.add(client=["a", "a", "b"], at=[1000, 2500, 5000], bytes=[10, 20, 30], cost=[None, 5, 6])
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=2, groups=4)
    engine.register("R", feed.stream(spark), time="at", lateness="1 second")
    writers = [
        engine.sql(text).writeStream.queryName(name).format("noop").trigger(availableNow=True)
        for name, text in (("counts", COUNTS), ("pairs", PAIRS))
    ]
    run = engine.start(writers)
    run.awaitTermination()

    first, second = (entry for entry in run.recentProgress if "anabranch" in entry)
    last = run.lastProgress
    assert last is not None
    assert [entry["sink"]["numOutputRows"] for entry in (first, second, last)] == [2, 12, 12]
    assert without_times(first) == {
        "step": 2,
        "queries": {"counts": {"numOutputRows": 0, "results": 0}, "pairs": {"numOutputRows": 2, "results": 2}},
        "receivedRows": {"R": 3, "x": 2, "y": 2},
        "lateRows": NONE,
        "lateJoinedRows": 0,
        "quarantinedRows": NONE,
        "newestEventTime": {"R": 3_900_000, "x": 3_900_000, "y": 3_900_000},
        "watermark": {"R": 2_900_000, "x": None, "y": None},
        "totals": {
            "combinations": 2,
            "results": {"counts": 0, "pairs": 2},
            "received": {"R": 3, "x": 2, "y": 2},
            "late": NONE,
            "rejected": NONE,
            "late_joined": 0,
        },
        "processors": [processor(0, 1, 1082, 0, came=1), processor(1, 6, 3630, 2, came=6)],
        "operators": operators((3, 0), (4, 2)),
        "exchangedRows": [3 + 2 + 2],
    }
    of_second = {
        "step": 3,
        "queries": {"counts": {"numOutputRows": 2, "results": 2}, "pairs": {"numOutputRows": 10, "results": 12}},
        "receivedRows": {"R": 3, "x": 3, "y": 3},
        "lateRows": {"R": 2, "x": 0, "y": 0},
        "lateJoinedRows": 0,
        "quarantinedRows": NONE,
        "newestEventTime": {"R": 5_000_000, "x": 5_000_000, "y": 5_000_000},
        "watermark": {"R": 4_000_000, "x": None, "y": None},
        "totals": {
            "combinations": 14,
            "results": {"counts": 2, "pairs": 12},
            "received": {"R": 6, "x": 5, "y": 5},
            "late": {"R": 2, "x": 0, "y": 0},
            "rejected": NONE,
            "late_joined": 0,
        },
        "processors": [processor(0, 1, 1082, 1, came=0), processor(1, 13, 7316, 11, came=7)],
        "operators": operators((1, 2), (6, 10)),
        "exchangedRows": [3 + 3 + 3],
    }
    assert without_times(second) == of_second
    # The last batch, with what was answered after it, at the end of the input.
    assert without_times(last) == {
        **of_second,
        "queries": {"counts": {"numOutputRows": 2, "results": 4}, "pairs": {"numOutputRows": 10, "results": 12}},
        "totals": {**of_second["totals"], "combinations": 16, "results": {"counts": 4, "pairs": 12}},
        "processors": [processor(0, 0, 0, 0, came=0), processor(1, 13, 7316, 2, came=0)],
        "operators": operators((0, 2), (0, 0)),
    }
    assert json.loads(json.dumps(last)) == last
    assert run.groups() == [
        group("groups of R", activeBytes=2172, results=3, rows=3),
        group("join of x, y", activeBytes=5144, results=12, rows=10),
    ]
    run.explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("processor ") and "active state" in line] == [
        "processor 0: 0 rows of active state, 0 B",
        "processor 1: 13 rows of active state, 7.1 KiB",
    ]
