"""What policies are shown of a run's operators: what they do, what it costs, and how they lie in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.manager.actions import Action
from anabranch.manager.snapshot import Snapshot
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABC"}
CHAIN = "SELECT A.k AS a, C.j AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
SHOWN: list[Snapshot] = []


class Watches:
    """A policy that decides nothing."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        """Remember what is shown."""
        SHOWN.append(snapshot)
        return iter(())


def test_policies_see_rows_results_bytes_and_cpu_time_of_each_operator(spark: SparkSession, tmp_path: Path) -> None:
    """(A B) C: ten rows of A meet ten of B, one to one, and the ten results meet one row of C each."""
    SHOWN.clear()
    numbers = pa.table([list(range(10)), list(range(10))], schema=SCHEMA)
    with Steps(
        spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", settings={"policies": [Watches()]}, processors=2
    ) as steps:
        steps.feed({"A": numbers, "B": numbers})
        steps.feed({"C": numbers.slice(0, 7)})
    first, second = SHOWN
    below, above = first.plan.operators
    assert [edge.alias for edge in below.edges] == ["A", "B"]
    assert {edge.alias: edge.operators for edge in above.edges} == {None: (below.number,), "C": ()}
    assert [edge.key for edge in below.edges] == [("`k`",), ("`k`",)]

    def of(snapshot: Snapshot, name: str) -> list[int]:
        """Of both operators, over all processors."""
        return [sum(getattr(p.operators[n], name) for p in snapshot.processors) for n in (below.number, above.number)]

    assert (of(first, "rows"), of(first, "results")) == ([20, 10], [10, 0])
    assert (of(second, "rows"), of(second, "results")) == ([0, 7], [0, 7])
    assert all(size > 0 for size in of(second, "active_bytes"))
    for operator, expected in ((below, {"A": 10, "B": 10}), (above, {None: 10, "C": 7})):
        arrived = sum(seen.operators[operator.number].statistics.arrivals.sum(axis=0) for seen in second.processors)
        assert dict(zip([edge.alias for edge in operator.edges], arrived.tolist(), strict=True)) == expected
    for snapshot in SHOWN:
        for seen in snapshot.processors:
            assert seen.rows == sum(one.rows for one in seen.operators)
            assert 0 < sum(one.cpu for one in seen.operators) <= seen.cpu
