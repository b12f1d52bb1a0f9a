"""Whatever the order of the joins, the state of any other order can be made of what it holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.language import parse_query
from anabranch.manager.shadows.filling import planned_filling
from anabranch.plan.arrangement import UnconnectedError
from anabranch.plan.assembly import network_of
from anabranch.plan.join_order import arranged
from anabranch.plan.network import Network, Request
from anabranch.plan.query import ContinuousQuery, StreamSchema
from tests.plan.logical import all_trees

# The column that stands first is in no key.
STREAMS = {name: StreamSchema(name, ("v", "t", "k", "j"), "t", 1_000) for name in "ABCD"}


def asked(chance: random.Random) -> str:
    """A join of three or four streams that selects of some of them, or of none."""
    names = "ABCD"[: chance.choice([3, 4])]
    terms = [
        f"{chance.choice(names[:n])}.{chance.choice('kkj')} = {name}.{chance.choice('kkj')}"
        for n, name in enumerate(names[1:], start=1)
        for _ in range(chance.choice([1, 1, 2]))
    ]
    terms += [f"{names[0]}.v < {names[-1]}.v"] * (chance.random() < 0.2)
    columns = [f"{name}.{chance.choice('vkj')} AS {name}" for name in names if chance.random() < 0.4]
    items = [f"{name}{chance.choice(['', ' [RANGE 5 SECONDS]'])}" for name in names]
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM {', '.join(items)} WHERE {' AND '.join(terms)}"


def orders(query: ContinuousQuery, chance: random.Random) -> Iterator[ContinuousQuery]:
    """The query in any orders that are possible."""
    assert query.logical is not None
    trees = list(all_trees(tuple(range(len(query.inputs)))))
    for tree in chance.sample(trees, len(trees)):
        try:
            yield arranged(query.logical, tree)
        except UnconnectedError:
            continue


def columns_lacking(there: Network, needed: Network) -> list[str]:
    """The ports of a network that need columns which the same ports of another one do not store."""
    stored = {
        f"{operator.identity}/{p}": port.state for operator in there.operators for p, port in enumerate(operator.ports)
    }
    return [
        name
        for operator in needed.operators
        for p, port in enumerate(operator.ports)
        if (name := f"{operator.identity}/{p}") in stored and not stored[name].columns >= port.state.columns
    ]


@given(seed=st.integers(0, 2**32))
def test_any_order_of_joins_is_filled_from_any_other_whatever_is_selected(seed: int) -> None:
    chance = random.Random(seed)
    query = parse_query(asked(chance), STREAMS)
    one = parse_query(f"SELECT 1 AS one FROM {query.text.split(' FROM ')[1]}", STREAMS)
    others = {"other": query, "one": one}
    beside = [Request(name, other, since=1) for name, other in others.items() if chance.random() < 0.5]
    before, after, *_ = orders(query, chance)
    asking = [Request("query", before, since=1), *beside]
    shadowed = network_of([*asking, Request("shadow", after, since=1, track=7, shadow_of="query")], STREAMS)
    filling = planned_filling(shadowed, "query")
    leaves = [
        number
        for number, (n, p) in enumerate(shadowed.ports)
        if shadowed.is_shadow(n) and shadowed.operator_of(shadowed.operators[n].ports[p].node) is None
    ]
    assert len(leaves) == len(query.inputs)
    assert all(port in filling.listed or port in filling.rehashed for port in leaves)
    alone = network_of([replace(asking[0], query=after, track=7), *beside], STREAMS)
    assert not columns_lacking(shadowed, alone)
    assert not columns_lacking(network_of(asking, STREAMS), shadowed)


def test_a_stream_of_which_nothing_is_selected_keeps_one_column_of_its_key() -> None:
    query = parse_query("SELECT A.v FROM A, B, C WHERE A.k = B.k AND B.k = C.j", STREAMS)
    assert [entry.columns for entry in query.inputs] == [("v",), ("k",), ("j",)]


@pytest.mark.parametrize("gone", ["first", "second"])
def test_what_a_shared_join_needs_is_there_when_the_other_query_has_gone(gone: str) -> None:
    texts = {"first": "SELECT B.v FROM A, B WHERE A.k = B.k", "second": "SELECT 1 AS one FROM A, B WHERE A.k = B.k"}
    requests = [Request(name, parse_query(text, STREAMS), since=1) for name, text in texts.items()]
    left = [request for request in requests if request.name != gone]
    assert len(network_of(requests, STREAMS).operators) == 1
    assert not columns_lacking(network_of(requests, STREAMS), network_of(left, STREAMS))
