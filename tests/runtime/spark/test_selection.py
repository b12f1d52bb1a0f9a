"""A selection gives the rows that PySpark's own methods give, for one data frame after another."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.runtime.spark.selection import Partition, Select, Selection, Where

pytestmark = pytest.mark.spark

KEPT = Where("a % 3 > 0")
MADE = Select(("*", "a * 2 AS b"))
SENT = Partition("CAST(b % 4 AS INT)", 4)
LEFT = Select(("* EXCEPT (a)", "CAST(NULL AS ARRAY<STRING>) AS c"))


def numbers(spark: SparkSession, start: int) -> DataFrame:
    return spark.range(start, start + 50, numPartitions=3).selectExpr("id AS a")


def placed(rows: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in rows.withColumn("partition", F.spark_partition_id()).collect())


@pytest.mark.parametrize("start", [0, 1000])
def test_steps_are_those_of_pyspark_in_their_order(spark: SparkSession, start: int) -> None:
    rows = numbers(spark, start)
    step_by_step = rows.where(KEPT.condition).selectExpr(*MADE.columns).repartitionById(4, F.expr(SENT.number))
    step_by_step = step_by_step.selectExpr("b", "CAST(NULL AS ARRAY<STRING>) AS c")

    selected = Selection(KEPT, MADE, SENT, LEFT)(rows)

    assert selected.schema == step_by_step.schema
    assert placed(selected) == placed(step_by_step)
    assert len({row[-1] for row in placed(selected)}) == 2, "even numbers fill two of the four partitions"


def test_one_selection_serves_many_data_frames(spark: SparkSession) -> None:
    selection = Selection(KEPT, MADE)

    doubled = [selection(numbers(spark, start)).agg(F.sum("b")).collect()[0][0] for start in (0, 100)]

    assert doubled == [sum(2 * a for a in range(start, start + 50) if a % 3) for start in (0, 100)]


def test_a_frame_with_the_columns_of_the_one_before_is_selected_by_the_expressions_of_that_one(
    spark: SparkSession,
) -> None:
    """Batches of a streaming query have equal columns, down to Spark's ids; other frames may come in between."""
    steps, analysed = (KEPT, MADE, SENT, LEFT), numbers(spark, 0)
    selection, other = Selection(*steps), numbers(spark, 1000)
    batches = [analysed, analysed, analysed, other, other, other, analysed]

    for rows in batches:
        assert placed(selection(rows)) == placed(Selection(*steps)(rows))


def test_rows_are_multiplied_by_an_expression_that_spark_makes_a_node_of(spark: SparkSession) -> None:
    selection, rows = Selection(Select(("*", "explode(array(a, -a)) AS b"))), numbers(spark, 0)

    for _ in range(3):
        assert sorted(row["b"] for row in selection(rows).collect()) == sorted([*range(50), *range(0, -50, -1)])
