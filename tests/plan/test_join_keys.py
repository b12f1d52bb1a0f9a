"""Keys, conditions and checks of any plan say what the equalities said."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.plan.arrangement import Shape, UnconnectedError
from anabranch.plan.join_keys import KeyPlan, plan_keys
from anabranch.plan.query import Equality, Term

ALIASES = ("A", "B", "C", "D")
TERMS = [Term(alias, name, f"{alias}.{name}") for alias in ALIASES for name in ("x", "y")]
TREES: tuple[Shape | None, ...] = (
    None,
    (((0, 1), 2), 3),
    ((3, (2, 0)), 1),
    ((0, 1), (2, 3)),
    ((0, 3), (1, 2)),
    ((0, 1, 2), 3),
    (2, (3, 1, 0)),
    (0, 1, 2, 3),
)

equality_graphs = st.lists(st.tuples(st.sampled_from(TERMS), st.sampled_from(TERMS)), min_size=3, max_size=7)
shapes = st.sampled_from(TREES)


def _plan(equalities: list[Equality], shape: Shape | None) -> KeyPlan:
    try:
        return plan_keys(ALIASES, equalities, shape)
    except UnconnectedError:
        assume(False)
        raise


def _holds(pairs: list[Equality], row: dict[Term, int | None]) -> bool:
    return all(row[left] is not None and row[left] == row[right] for left, right in pairs)


def _as_pairs(plan: KeyPlan) -> list[Equality]:
    pairs = list(plan.conditions)
    for operator in plan.operators:
        pairs += operator.checks
        for terms in zip(*operator.keys, strict=True):
            pairs += pairwise(terms)
    return pairs


@given(equality_graphs, shapes)
def test_the_plan_of_any_equalities_is_equivalent_to_them(equalities: list[Equality], shape: Shape | None) -> None:
    rewritten = _as_pairs(_plan(equalities, shape))
    used = list(dict.fromkeys(term for pair in equalities for term in pair))
    for values in product((None, 1, 2), repeat=len(used)):
        row = dict(zip(used, values, strict=True))
        assert _holds(rewritten, row) == _holds(equalities, row)


@given(equality_graphs, shapes)
def test_every_operator_has_a_term_of_each_of_its_parts_per_key_column(
    equalities: list[Equality], shape: Shape | None
) -> None:
    plan = _plan(equalities, shape)
    inputs = [{alias} for alias in ALIASES]
    for operator in plan.operators:
        inputs.append(set().union(*(inputs[part] for part in operator.parts)))
        for part, terms in zip(operator.parts, operator.keys, strict=True):
            assert len(terms) == len(operator.classes) > 0
            assert all(term.alias in inputs[part] for term in terms)
            assert all(term in plan.classes[n] for n, term in zip(operator.classes, terms, strict=True))
        for left, right in operator.checks:
            assert {left.alias, right.alias} <= inputs[-1]
    assert inputs[-1] == set(ALIASES)
    assert all(left.alias == right.alias for left, right in plan.conditions)


@given(equality_graphs, st.sampled_from([tree for tree in TREES if tree is not None]))
def test_a_shape_is_followed(equalities: list[Equality], shape: Shape) -> None:
    plan = _plan(equalities, shape)

    def drawn(part: int) -> Shape:
        if part < len(ALIASES):
            return part
        return tuple(map(drawn, plan.operators[part - len(ALIASES)].parts))

    assert drawn(len(ALIASES) + len(plan.operators) - 1) == shape


def test_key_columns_come_in_the_order_in_which_their_classes_appear() -> None:
    x, y = ({term.alias: term for term in TERMS if term.below == name} for name in ("x", "y"))
    (operator,) = plan_keys(("A", "B"), [(y["B"], y["A"]), (x["A"], x["B"])]).operators
    assert [term.below for term in operator.keys[0]] == ["y", "x"]


def test_an_equality_inside_a_stream_connects_the_keys_of_the_others() -> None:
    a_x, a_y, b_x, _, c_x, *_ = TERMS
    plan = plan_keys(("A", "B", "C"), [(a_x, b_x), (c_x, a_y), (a_x, a_y)])
    assert [operator.keys for operator in plan.operators] == [((a_x,), (b_x,), (c_x,))]
    assert plan.conditions == ((a_x, a_y),)


def test_streams_that_share_no_key_meet_after_those_that_do_lowest_first() -> None:
    a_x, _, b_x, b_y, c_x, c_y, d_x, _ = TERMS
    chain = plan_keys(ALIASES, [(a_x, b_x), (b_y, c_y), (c_x, d_x)])
    assert [operator.parts for operator in chain.operators] == [(0, 1), (2, 3), (4, 5)]


def test_keys_that_already_partition_a_part_are_enough_for_the_operator_above() -> None:
    a_x, _, b_x, b_y, c_x, c_y, *_ = TERMS
    equalities = [(a_x, b_x), (b_x, c_x), (b_y, c_y)]
    plan = plan_keys(("A", "B", "C"), equalities, ((0, 1), 2))
    lower, upper = plan.operators
    assert lower.classes == upper.classes == (0,)
    assert upper.checks == ((b_y, c_y),)


def test_streams_that_nothing_connects_are_refused() -> None:
    a_x, _, b_x, b_y, _, c_y, *_ = TERMS
    with pytest.raises(UnconnectedError) as caught:
        plan_keys(("A", "B", "C"), [(a_x, b_x)])
    assert caught.value.parts == (frozenset({2}), frozenset({0, 1}))
    with pytest.raises(UnconnectedError) as caught:
        plan_keys(("A", "B", "C"), [(a_x, b_x), (b_y, c_y)], ((0, 2), 1))
    assert caught.value.parts == (frozenset({0}), frozenset({2}))
