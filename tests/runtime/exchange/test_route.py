"""Spark sends rows where the routing says, by owner, spread and everywhere; owners alone cost no more than before."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.plan.placement import even_placement
from anabranch.plan.routing import Everywhere, PortRouting, Routing, Spread, port_routings, processors_of
from anabranch.runtime.exchange.route import Address, address
from anabranch.runtime.spark.selection import Selection
from anabranch.state.groups import groups_of
from tests.oracle.profiles import examples
from tests.plan.routings import routings

pytestmark = pytest.mark.spark

GROUPS, PROCESSORS, ROWS = 16, 4, 600
COLUMNS = {
    "hash": T.LongType(),
    "ts": T.LongType(),
    "s0": T.StringType(),
    "s1": T.DoubleType(),
    "s2": T.MapType(T.StringType(), T.LongType()),
}
Sent = Counter[tuple[int, int]]


@pytest.fixture(scope="module")
def packed(spark: SparkSession) -> DataFrame:
    """Rows of three tags with all kinds of columns, some of them equal; `ts` tells them apart."""
    rows = spark.range(ROWS, numPartitions=3).selectExpr(
        "CAST(id % 3 AS SMALLINT) AS input",
        "xxhash64(id DIV 4) AS hash",
        "id AS ts",
        "IF(id % 5 = 0, NULL, CAST(id % 7 AS STRING)) AS s0",
        "CAST(id AS DOUBLE) / 3 AS s1",
        "map('id', id) AS s2",
    )
    return rows.cache()


@pytest.fixture(scope="module")
def known(packed: DataFrame) -> dict[str, np.ndarray]:
    rows = packed.select("input", "hash", "ts", F.xxhash64("hash", "ts", "s0", "s1").alias("row")).toArrow()
    return {name: rows.column(name).to_numpy() for name in rows.column_names}


def exchanged(rows: DataFrame, sent: Address) -> DataFrame:
    return Selection(*sent.multiplied, *sent.exchanged(PROCESSORS))(rows)


def by_spark(packed: DataFrame, routings: dict[int, PortRouting]) -> Sent:
    rows = exchanged(packed, address(routings, COLUMNS))
    assert rows.columns == packed.columns
    arrived = rows.select("ts", F.spark_partition_id().alias("processor")).toArrow()
    return Counter(zip(*(arrived.column(name).to_pylist() for name in ("ts", "processor")), strict=True))


def by_numpy(known: dict[str, np.ndarray], routings: dict[int, PortRouting]) -> Sent:
    found: Sent = Counter()
    for tag, routing in routings.items():
        mine = np.flatnonzero(known["input"] == tag)
        groups = groups_of(known["hash"][mine].view(np.uint64), len(routing.placement))
        rows, processors = processors_of(routing, groups, known["row"][mine].view(np.uint64))
        found.update(zip(known["ts"][mine[rows]].tolist(), processors.tolist(), strict=True))
    return found


@examples(12)
@given(data=st.data())
def test_spark_sends_each_row_to_the_processors_of_the_reference(
    packed: DataFrame, known: dict[str, np.ndarray], data: st.DataObject
) -> None:
    """Two ports of one operator and one of another: all three kinds of routes in one exchange."""
    operators = [data.draw(routings(GROUPS, PROCESSORS, 2)), data.draw(routings(GROUPS, PROCESSORS, 1))]
    ports = dict(enumerate(port_routings(operators, [0, 0, 1])))
    assert by_spark(packed, ports) == by_numpy(known, ports)


@pytest.mark.parametrize("placement", [even_placement(GROUPS, 3), (2,) * GROUPS, (0, 3, 1, 1) * 4, (1,)])
def test_owners_get_their_rows(packed: DataFrame, known: dict[str, np.ndarray], placement: tuple[int, ...]) -> None:
    ports = dict.fromkeys(range(3), PortRouting(placement)) | {1: PortRouting(even_placement(GROUPS, 4))}
    assert by_spark(packed, ports) == by_numpy(known, ports)


def test_all_groups_diffused_in_two_ways(packed: DataFrame, known: dict[str, np.ndarray]) -> None:
    routing = Routing((1,) * GROUPS)
    one, other = (Spread((1, 0), (1.0, 2.0)), Everywhere((1, 0))), (Everywhere((3, 1, 2)), Spread((3, 1, 2), (1, 1, 9)))
    routing = routing.diffuse(range(0, GROUPS, 2), one).diffuse(range(1, GROUPS, 2), other)
    ports = {0: routing.port(0), 1: routing.port(1), 2: routing.port(0)}
    assert by_spark(packed, ports) == by_numpy(known, ports)


def plan_of(rows: DataFrame) -> str:
    """Of an exchange, without the numbers that Spark gives to columns and exchanges."""
    return re.sub(r"#\d+L?|plan_id=\d+", "", str(rows._jdf.queryExecution().toString()))


def test_rows_are_multiplied_only_where_some_go_to_several_processors(packed: DataFrame) -> None:
    scattered = PortRouting((0, 3, 1, 1) * 4)
    ports = {0: PortRouting(even_placement(GROUPS, 3)), 1: scattered, 2: scattered}
    table = f"get(CAST(split('{','.join(map(str, scattered.placement))}', ',') AS ARRAY<INT>), "
    group = "CAST(shiftrightunsigned(hash, 60) AS INT)"
    written = f"CASE WHEN input IN (1, 2) THEN {table}{group}) ELSE CAST({group} * 3 DIV 16 AS INT) END"
    owned = exchanged(packed, address(ports, COLUMNS))
    literal = packed.repartitionById(PROCESSORS, F.expr(written))

    assert plan_of(owned) == plan_of(literal), "owners are one expression in the exchange itself"
    assert "explode" not in plan_of(owned)
    spread = Routing(scattered.placement).diffuse([0], (Spread((0, 1), (1, 1)), Everywhere((0, 1))))
    assert "explode" not in plan_of(exchanged(packed, address({**ports, 1: spread.port(0)}, COLUMNS)))
    assert "explode" in plan_of(exchanged(packed, address({**ports, 1: spread.port(1)}, COLUMNS)))
