"""The identity of a port's state: equal in every tree, whatever inputs are called, and different for other rows."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.language import parse_query
from anabranch.plan.arrangement import Shape
from anabranch.plan.assembly import network_of
from anabranch.plan.join_order import arranged
from anabranch.plan.network import Network, Request
from anabranch.plan.query import ContinuousQuery
from anabranch.plan.sharing.port_state import PortIdentity, PortState
from tests.oracle.profiles import examples
from tests.plan.test_join_order import QUERIES, STREAMS, TREES

TWO_KEYS = "SELECT A.v FROM A, B, C, D WHERE A.k = B.k AND A.j = B.j AND B.k = C.k AND C.j = D.j AND A.j = D.j"
SELF_JOIN = "SELECT x.v FROM A x, A y, B, C WHERE x.k = y.k AND y.k = B.k AND B.k = C.k AND x.v < y.v AND y.v > 3"
BLOCK = (
    "SELECT A.v FROM A JOIN B USING (k) JOIN C USING (k) JOIN "
    "(SELECT x.k, y.v FROM A x, B y, C z WHERE x.k = y.k AND y.k = z.k AND x.v < z.v) AS D USING (k)"
)
# What a query holds where: by the aliases whose rows lie there, and the classes that they are hashed on.
States = dict[tuple[frozenset[str], tuple[frozenset[tuple[str, str]], ...]], PortState]


def network(query: ContinuousQuery, since: int = 0) -> Network:
    return network_of([Request("q", query, since)], STREAMS)


def states(made: Network) -> States:
    found: States = {}
    for operator in made.operators:
        for port in operator.ports:
            aliases = frozenset(made.inputs[n].entry.alias for n in made.inputs_of(port.node))
            key = tuple(map(frozenset, operator.terms)) or (frozenset({("grouped by", text) for text in port.keys}),)
            found[aliases, key] = port.state
    return found


def leaves(text: str, **changed: object) -> dict[str, PortIdentity]:
    """By alias, the identity of the states of inputs; streams may be `changed`."""
    streams = {**STREAMS, "A": replace(STREAMS["A"], **changed)}  # type: ignore[arg-type]
    made = network_of([Request("q", parse_query(text, streams))], streams)
    ports = [port for operator in made.operators for port in operator.ports if port.node < len(made.inputs)]
    return {made.inputs[port.node].entry.alias: port.state.identity for port in ports}


def random_shape(chance: random.Random, parts: list[Shape]) -> Shape:
    """Any tree over the parts, in any order, with operators of two or more parts."""
    while len(parts) > 1:
        chance.shuffle(parts)
        count = chance.randint(2, len(parts))
        parts = [tuple(parts[:count]), *parts[count:]]
    return parts[0]


def is_connected(query: ContinuousQuery, shape: Shape) -> bool:
    assert query.logical is not None
    try:
        arranged(query.logical, shape)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", [*QUERIES, TWO_KEYS, SELF_JOIN, BLOCK])
@examples(25)
@given(seed=st.integers(0, 10_000))
def test_states_of_the_same_inputs_and_key_have_one_identity_in_all_trees(text: str, seed: int) -> None:
    query, chance = parse_query(text, STREAMS), random.Random(seed)
    assert query.logical is not None
    count = len(query.inputs)
    shapes = [shape for _ in range(8) if is_connected(query, shape := random_shape(chance, list(range(count))))]
    found = [states(network(arranged(query.logical, shape))) for shape in (None, *shapes)]
    known: dict[object, PortIdentity] = {}
    for each in found:
        for place, state in each.items():
            assert known.setdefault(place, state.identity) == state.identity
    rows: dict[frozenset[str], object] = {}
    for (aliases, _), identity in known.items():
        told = identity.holds, identity.conditions
        assert rows.setdefault(aliases, told) == told, "another key does not make them other rows"


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("joins", TREES)
def test_leaves_are_equal_in_all_trees_and_serve_each_other_if_they_have_the_columns(text: str, joins: str) -> None:
    one, other = (states(network(parse_query(text, STREAMS, j))) for j in (joins, "((A B) C) D"))
    for place in (place for place in one if len(place[0]) == 1 and place in other):
        assert one[place].identity == other[place].identity
        assert one[place].serves(other[place]) == (one[place].columns >= other[place].columns)
    singles = {place for place in one if len(place[0]) == 1}
    assert singles <= other.keys(), "these queries join on one class"


def test_a_leaf_that_keeps_more_columns_serves_one_that_needs_fewer() -> None:
    text = "SELECT A.v FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND A.j < C.j"
    found = [states(network(parse_query(text.replace("A.v", what), STREAMS))) for what in ("A.v", "A.v, A.t")]
    for place, state in found[0].items():
        assert found[1][place].serves(state)
    place = next(place for place in found[0] if place[0] == {"A"})
    assert not found[0][place].serves(found[1][place])


def test_an_intermediate_state_is_the_same_whatever_made_it() -> None:
    equal = "A.k = B.k AND B.k = C.k AND C.k = D.k"
    text = f"SELECT A.v, B.v AS w FROM A, B, C, D WHERE {equal} AND A.v < B.v AND B.v < C.v"
    identities = []
    for tree in ["((A B) C) D", "((C B) A) D", "(B (C A)) D", "(A B C) D"]:
        found = states(network(parse_query(text, STREAMS, tree)))
        identities += [state.identity for (aliases, _), state in found.items() if aliases == frozenset("ABC")]
    assert len(identities) == 4
    assert len(set(identities)) == 1


BASE = "SELECT x.v FROM A x, B y WHERE x.k = y.k AND x.v > 1"


def test_names_and_the_order_of_the_text_do_not_matter() -> None:
    renamed = leaves("SELECT one.v FROM B two, A one WHERE one.v > 1 AND two.k = one.k")
    assert {"x": renamed["one"], "y": renamed["two"]} == leaves(BASE)
    text = "SELECT {0}.v FROM A {0}, B {1}, C {2} WHERE {0}.k = {1}.k AND {1}.j = {2}.j AND {0}.v < {1}.v"
    one, other = (
        set(states(network(parse_query(text.format(*names), STREAMS))).values())
        for names in (("x", "y", "z"), ("z", "y", "a"))
    )
    assert one == other


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("> 1", "> 2"),
        BASE.replace("A x", "A [RANGE 5 SECONDS] AS x"),
        BASE.replace("A x", "C x"),
        BASE.replace("x.k = y.k", "x.j = y.k"),
        BASE.replace("x.k = y.k", "x.k + 1 = y.k"),
        BASE + " AND x.k = x.j",
        BASE.replace("A x", "(SELECT k, v FROM A WHERE j = 1) x"),
    ],
)
def test_other_rows_or_another_key_are_another_identity(text: str) -> None:
    assert leaves(text)["x"] != leaves(BASE)["x"]


def test_lateness_and_the_beginning_of_a_query_are_part_of_an_identity() -> None:
    assert leaves(BASE, lateness=2_000)["x"] != leaves(BASE)["x"]
    first, later = (states(network(parse_query(BASE, STREAMS), since)) for since in (0, 1))
    assert all(first[place].identity != later[place].identity for place in first)


def test_another_condition_on_joined_rows_is_another_identity_of_theirs_alone() -> None:
    text = "SELECT A.v FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND A.v < B.v"
    one, other = (
        states(network(parse_query(each, STREAMS, "(A B) C"))) for each in (text, text.replace("A.v <", "A.v >"))
    )
    for place in one:
        assert (one[place].identity == other[place].identity) == (len(place[0]) == 1)


def test_the_order_of_joins_inside_of_a_sub_query_does_not_matter() -> None:
    """Its rows are the same in any order."""
    query = parse_query(BLOCK, STREAMS)
    (source,) = query.inputs[3].sources
    assert source.block is not None
    assert source.block.logical is not None
    block = arranged(source.block.logical, ((0, 1), 2))
    assert block.operators != source.block.operators
    inputs = (*query.inputs[:3], replace(query.inputs[3], sources=(replace(source, block=block),)))
    one, other = (states(network(each)) for each in (query, replace(query, inputs=inputs)))
    place = next(place for place in one if place[0] == {"D"})
    assert one[place].identity == other[place].identity


def test_the_digest_stands_for_the_identity() -> None:
    found, again = leaves(BASE), leaves(BASE)
    assert found["x"].digest == again["x"].digest != found["y"].digest
    assert PortState(found["x"], frozenset({"0.v"})).to_json()["digest"] == found["x"].digest
