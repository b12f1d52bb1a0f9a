"""Diffused groups of a join, on Spark: the answers are DuckDB's, and every count that people see counts a row once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.manager.actions import Action, DiffuseGroups, GatherGroups
from anabranch.manager.snapshot import Snapshot
from anabranch.state.report import Report
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = {"A": Kind(SCHEMA), "B": Kind(SCHEMA)}
QUERY = "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k"
COLUMNS = ["A.k", "A.v", "B.v AS w"]
GROUPS = 4
EVERY_GROUP = tuple(range(GROUPS))


@dataclass(frozen=True)
class Script:
    """A policy that decides on these actions after these batches, counted from 1."""

    actions: Mapping[int, Sequence[Action]]

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        yield from self.actions.get(snapshot.step - 1, ())


def diffuse(master: int, *hosts: int, groups: Sequence[int] = EVERY_GROUP) -> DiffuseGroups:
    """Over some hosts, the first of which gets twice as much as any other."""
    weights = (2.0, *(1.0 for _ in hosts[1:]))
    return DiffuseGroups(0, tuple(groups), master, hosts, weights, "a test wants it")


def gather(to: int | None = None, groups: Sequence[int] = EVERY_GROUP) -> GatherGroups:
    return GatherGroups(0, tuple(groups), to, "a test wants it")


def rows(number: int, count: int, keys: Sequence[int | None] = (7,)) -> pa.Table:
    """Rows of a batch; every one has its own value."""
    values = range(1_000 * number, 1_000 * number + count)
    return pa.table({"k": [keys[n % len(keys)] for n in range(count)], "v": list(values)}, schema=SCHEMA)


def reports(steps: Steps) -> tuple[Report, ...]:
    return steps.results[-1].reports


def test_one_key_is_spread_over_processors_and_gathered_again(spark: SparkSession, tmp_path: Path) -> None:
    script = {1: [diffuse(0, 0, 1, 2)], 3: [diffuse(1, 1, 2)], 4: [diffuse(0, 2, 0, 1)], 6: [gather(to=1)]}
    fed = {"A": rows(0, 0), "B": rows(0, 0)}
    settings = {"policies": [Script(script)]}
    with Steps(spark, tmp_path / "c", QUERY, KINDS, processors=3, groups=GROUPS, settings=settings) as steps:
        for number in range(1, 9):
            batch = {"A": rows(number, 40), "B": rows(100 + number, 10, [7, 8, None])}
            fed = {name: pa.concat_tables([fed[name], table]) for name, table in batch.items()}
            steps.feed(batch)
            steps.check_owners()
            expected = join({name: Stream(table, ["k"]) for name, table in fed.items()}, COLUMNS)
            assert_same_rows(steps.answer, expected)
            assert sum(sum(report.received) for report in reports(steps)) == 40 + 7
            copies = sum(sum(report.copied) for report in reports(steps))
            assert copies == {2: 14, 3: 14, 4: 40, 5: 14, 6: 14}.get(number, 0)
            assert steps.active_rows == 47 * number
        worked = [sum(report.worked) for report in reports(steps)]
    assert worked == [0, 47, 0]
