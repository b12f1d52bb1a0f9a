"""Queries over operators of users: over a stream, and over the results of another operator."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError
from anabranch.language import parse_query
from anabranch.plan.query import Application, AppliedOperator, ContinuousQuery, StreamSchema


def schema(name: str, over: str, key: str, columns: tuple[str, ...]) -> StreamSchema:
    applied = AppliedOperator(name, f"<{name}>", ("v",), "...")
    return StreamSchema(name, columns, application=Application(over, (key,), None, applied))


def bound(text: str, key: str = "lower(k)") -> ContinuousQuery:
    streams = {
        "s": StreamSchema("s", ("k", "v")),
        "first": schema("first", "s", "k % 2", ("k", "v")),
        "second": schema("second", "first", key, ("k", "w")),
    }
    return parse_query(text, streams)


def test_an_operator_over_a_stream_has_its_key_as_it_was_written() -> None:
    query = bound("SELECT v AS x FROM first WHERE v > 1")
    assert (query.inputs[0].stream, query.inputs[0].key) == ("s", ("k % 2",))
    assert not query.derived
    assert query.grouping is not None
    assert query.grouping.conditions == ("`v` > 1",)


def test_an_operator_over_another_one_takes_all_that_this_gives() -> None:
    query = bound("SELECT w FROM second")
    (entry,) = query.inputs
    (fed,) = entry.sources
    assert (entry.alias, entry.stream, entry.key) == ("first", "(first)", ("lower(`k`)",))
    assert query.derived[0].columns == ("k", "v")
    assert query.derived[0].time is None, "what an operator gives has no event time"
    assert fed.block is not None
    assert fed.block.grouping is not None
    assert fed.block.grouping.applied is not None
    assert fed.block.grouping.applied.name == "first"
    assert fed.block.inputs[0].stream == "s"


def test_both_are_joined_like_streams() -> None:
    query = bound("SELECT a.v, b.w FROM first a, second b WHERE a.k = b.k")
    depths = []
    for entry in query.inputs:
        block, depth = entry.sources[0].block, 0
        while block is not None:
            block, depth = block.inputs[0].sources[0].block, depth + 1
        depths.append(depth)
    assert depths == [1, 2]


def test_a_key_of_columns_that_the_operator_below_does_not_give_is_refused() -> None:
    with pytest.raises(QueryError, match="unknown column 'w'"):
        bound("SELECT w FROM second", key="w")


@pytest.mark.parametrize(
    "key", ["k, v", "k FROM first --", "k FROM first WHERE v > 1 --", "k FROM first UNION ALL SELECT v"]
)
def test_a_key_that_is_not_one_expression_is_refused(key: str) -> None:
    with pytest.raises(QueryError, match="is not one expression|cannot be read"):
        bound("SELECT w FROM second", key=key)
