"""Expressions reach Spark as they were written, with nothing but the column names replaced."""

from __future__ import annotations

import pytest

AS_WRITTEN = [
    "CAST({v} AS STRING)",
    "try_cast({v} AS DECIMAL(10, 2))",
    "{v}::decimal(10,2) + 1",
    "cast({v} AS STRUCT<foo: INT, bar: ARRAY<MAP<STRING, INT>>>).foo",
    "{v} % 3 + {v} div 2",
    "{v} << 1 & ~{v} ^ 3 | 4",
    "{v} || 'it''s' || \"x\" || r'a\\d' || 'it\\'s [RANGE 1]'",
    "INTERVAL 1 DAY 2 HOURS",
    "interval '1-2' year to month",
    "10L + 1.5BD + 1e3 + 1.5F + .5 + 7Y",
    "X'1F'",
    "date'2020-01-01' + 1",
    "TIMESTAMP '2020-01-01 00:00:00'",
    "CASE WHEN {v} > 1 THEN 'a' ELSE 'b' END",
    "CASE {v} WHEN 1 THEN 'a' END",
    "if({v} = 1, 2, 3)",
    "{v} LIKE 'a%' ESCAPE '/'",
    "{v} LIKE ANY ('a', 'b')",
    "{v} RLIKE '[0-9]'",
    "{v} not in (1, 2)",
    "{v} IS NOT DISTINCT FROM 1",
    "! ({v} = 1)",
    "extract(YEAR FROM {v})",
    "trim(BOTH 'x' FROM {v})",
    "substring({v} FROM 1 FOR 2)",
    "position('b' IN {v})",
    "overlay({v} PLACING 'Z' FROM 1)",
    "date_trunc('hour', {v})",
    "dateadd(MONTH, 1, {v})",
    "timestampdiff(HOUR, {v}, {v})",
    "to_timestamp({v})",
    "unix_timestamp({v})",
    "from_utc_timestamp({v}, 'UTC')",
    "element_at({v}, 1)",
    "nvl2({v}, 1, 2)",
    "shiftleft({v}, 1)",
    "struct({v} AS a, {v} + 1).a",
    "`struct`({v})",
    "mask({v}, upperChar => 'Q')",
    "{v} COLLATE UNICODE_CI",
    "my_own_function({v}, 'x')",
    "left({v}, 1) = 'now'",
    "map_filter({v}, (key, value) -> value > 3)",
]


@pytest.mark.parametrize("written", AS_WRITTEN)
def test_an_expression_is_rendered_as_written_below_and_above_the_join(bind, written: str) -> None:
    expression = written.replace("{v}", "A.v")
    query = bind(f"SELECT {expression} AS result FROM s A, t B WHERE A.k = B.k AND ({expression}) IS NULL")
    assert query.outputs[0].expression == written.replace("{v}", "`A.v`")
    if "{v}" in written:
        assert query.inputs[0].predicate == "({}) IS NULL".format(written.replace("{v}", "`v`"))
    else:
        assert query.residual == f"({written}) IS NULL"


def test_comments_fall_out_and_gaps_become_one_blank(bind) -> None:
    query = bind(
        "SELECT A.x -- plus [RANGE 1]\n   + /* one */1 AS a FROM s A, t B WHERE A.k = B.k AND A.v/*c*/> 1 -- end"
    )
    assert query.outputs[0].expression == "`A.x` + 1"
    assert query.inputs[0].predicate == "`v` > 1"


def test_fields_of_a_struct_are_called_as_the_columns_are_in_the_query(bind) -> None:
    """Spark takes their names from the columns, which are called otherwise above a join and above a grouping."""
    query = bind(
        "SELECT struct(A.v, B.V, array(struct(A.k)), A.v AS w) AS s FROM s A, t B "
        "WHERE A.k = B.k AND struct(A.v, A.k + 1) IS NOT NULL"
    )
    fields = "`A.v` AS `v`, `B.v` AS `V`, array(struct(`A.k` AS `k`)), `A.v` AS w"
    assert query.outputs[0].expression == f"struct({fields})"
    assert query.inputs[0].predicate == "struct(`v` AS `v`, `k` + 1) IS NOT NULL"
    grouped = bind("SELECT struct(k, max(v)) AS s FROM w [RANGE 1 MINUTE] GROUP BY k")
    assert grouped.outputs[0].expression == "struct(`group.0` AS `k`, `agg.0`)"
