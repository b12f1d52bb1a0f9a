"""GROUP BY, HAVING and DISTINCT: what is grouped by what, and what the answer is made of."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError, UnsupportedError
from anabranch.plan.query import AggregateCall, Grouping, Output
from tests.language.conftest import Bind

FROM = "FROM w [RANGE 1 MINUTE]"


def test_aggregates_of_a_stream_by_an_expression(bind: Bind) -> None:
    query = bind(
        f"SELECT w.k % 2 AS odd, count(*) AS n, 1 + Sum(v * 2) / COUNT(v) AS x {FROM} WHERE v > 3 GROUP BY w.k % 2"
    )
    assert query.grouping == Grouping(
        keys=("`k` % 2",),
        calls=(AggregateCall("count", None), AggregateCall("sum", "`v` * 2"), AggregateCall("count", "`v`")),
    )
    assert query.outputs == (
        Output("odd", "`group.0`"),
        Output("n", "`agg.0`"),
        Output("x", "1 + `agg.1` / `agg.2`"),
    )
    (entry,) = query.inputs
    assert (entry.window, entry.key, entry.conditions, entry.columns) == (60_000_000, ("`k` % 2",), ("`v` > 3",), ())
    assert query.operators == ()


def test_aggregates_of_a_join_carry_what_they_read(bind: Bind) -> None:
    text = "SELECT A.v, avg(B.x + A.y) AS m FROM w [RANGE 1 MINUTE] A, z B WHERE A.k = B.k AND A.x < B.x GROUP BY A.v"
    query = bind(text)
    assert query.grouping == Grouping(("`A.v`",), (AggregateCall("avg", "`B.x` + `A.y`"),))
    assert query.operators[-1].columns == (("A", "v"), ("A", "x"), ("A", "y"), ("B", "x"))
    assert query.operators[-1].conditions == ("`A.x` < `B.x`",)
    assert query.residual is None


def test_having_and_equal_calls(bind: Bind) -> None:
    text = f"SELECT k, max(v) AS most {FROM} GROUP BY k HAVING max(v) > 3 AND k <> 4 AND stddev(v) IS NOT NULL"
    query = bind(text)
    assert query.grouping is not None
    assert query.grouping.calls == (AggregateCall("max", "`v`"), AggregateCall("stddev", "`v`"))
    assert query.conditions == ("`agg.0` > 3", "`group.0` <> 4", "`agg.1` IS NOT NULL")


def test_keys_by_number_and_by_alias(bind: Bind) -> None:
    wanted = bind(f"SELECT k + 1 AS key, v, count(*) AS n {FROM} GROUP BY k + 1, v")
    for by in ("1, 2", "key, v", "1, w.v"):
        query = bind(f"SELECT k + 1 AS key, v, count(*) AS n {FROM} GROUP BY {by}")
        assert (query.grouping, query.outputs) == (wanted.grouping, wanted.outputs)


def test_without_group_by_all_rows_are_one_group(bind: Bind) -> None:
    grouping = bind(f"SELECT count(*) AS n {FROM}").grouping
    assert grouping == Grouping(("0",), (AggregateCall("count", None),))


def test_distinct_groups_by_what_it_shows(bind: Bind) -> None:
    query = bind(f"SELECT DISTINCT k, v + 1 AS more {FROM}")
    assert query.grouping == Grouping(("`k`", "`v` + 1"), (), distinct=True)
    assert query.outputs == (Output("k", "`group.0`"), Output("more", "`group.1`"))


def test_the_last_rows_of_each_group_once_per_batch(bind: Bind) -> None:
    query = bind("SELECT k, v, count(*) AS n FROM w [PARTITION BY v, w.k ROWS 10] GROUP BY k, v", emit="batch")
    assert query.grouping is not None
    assert (query.grouping.rows, query.grouping.once, query.inputs[0].window) == (10, True, None)


def test_a_function_s_name_may_be_a_column(bind: Bind) -> None:
    query = bind(f"SELECT k, count(*) AS count, max(payload.count) AS most {FROM} GROUP BY k")
    assert query.grouping is not None
    assert query.grouping.calls[1] == AggregateCall("max", "`payload`.count")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"SELECT v, count(*) AS n {FROM} GROUP BY k", "w.v is not in GROUP BY; put it there, or into an aggregate"),
        (f"SELECT k + 1 AS x, v + 1 AS y {FROM} GROUP BY k, v + 1, 9", "GROUP BY 9: there is no such SELECT item"),
        (f"SELECT sum(max(v)) AS x {FROM}", "an aggregate cannot be of another aggregate"),
        (f"SELECT sum(v, k) AS x {FROM}", "SUM takes one argument"),
        (f"SELECT sum() AS x {FROM}", "SUM takes one argument"),
        (
            "SELECT count(*) AS n FROM (SELECT k FROM w UNION ALL SELECT k FROM s) q [NOW]",
            "'s' is grouped but has no lateness",
        ),
        ("SELECT k FROM w [PARTITION BY k ROWS 99999999999] GROUP BY k", "is not a window.*from 1 to 1,000,000,000"),
        ("SELECT count(*) AS n FROM s [RANGE 1 MINUTE]", "'s' is grouped but has no lateness.*lateness=\"0 seconds\""),
        ("SELECT count(*) AS n FROM timeless", "'timeless' is grouped but has no event time.*time=\"ts\""),
        ("SELECT k FROM w [PARTITION BY k] GROUP BY k", "is not a window; write .PARTITION BY a ROWS 100."),
        ("SELECT k FROM w [PARTITION BY k ROWS 0] GROUP BY k", "is not a window.*with a number from 1 to"),
        ("SELECT k FROM w [PARTITION BY k v ROWS 5] GROUP BY k", "takes names of columns, with commas between"),
        ("SELECT k FROM w [PARTITION BY nope ROWS 5] GROUP BY k", "unknown column 'nope'"),
    ],
)
def test_wrong_groupings(bind: Bind, text: str, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        bind(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT k, count(*) AS n FROM w GROUP BY k",
            "GROUP BY or DISTINCT without a window.*as in w .RANGE 1 MINUTE.",
        ),
        (f"SELECT * {FROM} GROUP BY k", r"\* with GROUP BY or DISTINCT"),
        (f"SELECT DISTINCT count(*) AS n {FROM}", "an aggregate in SELECT DISTINCT"),
        (f"SELECT count(DISTINCT v) AS n {FROM}", r"COUNT\(DISTINCT \.\.\.\) is not supported"),
        (f"SELECT k, 1 + sum(DISTINCT v) AS n {FROM} GROUP BY k", r"SUM\(DISTINCT \.\.\.\) is not supported"),
        ("SELECT k FROM w [RANGE 1 MINUTE] GROUP BY k HAVING count(DISTINCT v, t) > 1", r"COUNT\(DISTINCT \.\.\.\)"),
        (f"SELECT median(v) AS n {FROM} GROUP BY k", "the aggregate function median"),
        (f"SELECT median(v) AS n {FROM}", "the aggregate function median"),
        (f"SELECT transform(arr, e -> sum(e)) AS n {FROM}", "an aggregate in a lambda"),
        ("SELECT m FROM w [PARTITION BY m.x ROWS 5] GROUP BY m", "a field of a column in PARTITION BY"),
        (f"SELECT k {FROM} WHERE count(*) > 1 GROUP BY k", "the aggregate function count"),
        (f"SELECT k {FROM} GROUP BY k, max(v)", "the aggregate function max"),
        ("SELECT DISTINCT k FROM w [PARTITION BY k ROWS 5]", "a window of ROWS in DISTINCT"),
        ("SELECT v FROM w [PARTITION BY k ROWS 5] GROUP BY v", "PARTITION BY other columns than GROUP BY"),
        (
            "SELECT A.k FROM w [PARTITION BY k ROWS 5] A, z B WHERE A.k = B.k GROUP BY A.k",
            "a window of ROWS in a join",
        ),
    ],
)
def test_groupings_that_are_not_supported(bind: Bind, text: str, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        bind(text)


def test_how_often_is_a_choice_of_two(bind: Bind) -> None:
    with pytest.raises(QueryError, match="emit must be 'tuple' or 'batch', not 'row'"):
        bind(f"SELECT count(*) AS n {FROM}", emit="row")
    for text in ("SELECT A.k FROM w A, z B WHERE A.k = B.k", f"SELECT DISTINCT k {FROM}"):
        with pytest.raises(QueryError, match="emit='batch' is for GROUP BY"):
            bind(text, emit="batch")


def test_a_key_is_known_by_its_words_and_a_shape_is_read_also_for_one_stream(bind: Bind) -> None:
    query = bind(f"SELECT (k+  v) AS x, count(*) AS n {FROM} GROUP BY k + v")
    assert query.outputs[0] == Output("x", "`group.0`")
    with pytest.raises(QueryError, match="nonsense"):
        bind(f"SELECT count(*) AS n {FROM}", joins="(nonsense w)")
