"""The form in which columns travel: whatever is nested in whatever, it has an Arrow form and comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from anabranch.runtime.rows.carried import carried_type, carry, check_carried, is_changed, restore
from tests.oracle.profiles import examples

pytestmark = pytest.mark.spark

LEAVES = [
    "1",
    "'x'",
    "NULL",
    "X'00'",
    "1.5BD",
    "INTERVAL '1-2' YEAR TO MONTH",
    "INTERVAL '-3' MONTH",
    "INTERVAL '1' DAY",
    "make_interval(1, -2, 0, 3, 0, 0, -4.5)",
    "CAST(NULL AS INTERVAL)",
    "array()",
    "map()",
]


def nested(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Arrays, structs and maps of parts, with nulls in all places that may be null."""
    return st.one_of(
        parts.map(lambda part: f"array({part}, NULL)"),
        parts.map(lambda part: f"array({part})"),
        st.tuples(parts, parts).map(lambda two: f"named_struct('a', {two[0]}, 'b c', {two[1]})"),
        st.tuples(parts, parts).map(lambda two: f"array(named_struct('key', {two[0]}, 'v0', {two[1]}), NULL)"),
        parts.map(lambda part: f"map(1, {part}, 2, NULL)"),
        parts.map(lambda part: f"map(INTERVAL '1' YEAR, {part})"),
        parts.map(lambda part: f"map(named_struct('m', make_ym_interval(1)), {part})"),
    )


values = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=8)


def texts(rows: DataFrame) -> list[str]:
    found = rows.selectExpr(*(f"concat_ws(' ', typeof({c}), CAST({c} AS STRING)) AS {c}" for c in rows.columns)).first()
    return [] if found is None else list(found)


@examples(8)
@given(st.lists(values, min_size=8, max_size=8))
def test_values_of_any_nesting_come_back_as_they_were(spark: SparkSession, written: list[str]) -> None:
    rows = spark.range(1).selectExpr(*(f"IF(id = 0, {value}, NULL) AS c{n}" for n, value in enumerate(written)))
    for field in rows.schema:
        check_carried(field.name, field.dataType)
        assert not is_changed(carried_type(field.dataType))
    carried = carry(rows)
    form = carried_type(rows.schema)
    assert isinstance(form, StructType)
    assert carried.schema.simpleString() == form.simpleString()
    through_python = carried.mapInArrow(lambda batches: batches, form)
    assert texts(restore(through_python, rows.schema)) == texts(rows)
