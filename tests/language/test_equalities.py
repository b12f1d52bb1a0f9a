"""Keys, conditions and what is left over say what the equalities said."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from anabranch.language.equalities import Equality, KeyPlan, Term, plan_keys

ALIASES = ("A", "B", "C")
TERMS = [Term(alias, name, f"{alias}.{name}") for alias in ALIASES for name in ("x", "y")]

equality_graphs = st.lists(st.tuples(st.sampled_from(TERMS), st.sampled_from(TERMS)), max_size=7)


def _holds(pairs: list[Equality], row: dict[Term, int | None]) -> bool:
    return all(row[left] is not None and row[left] == row[right] for left, right in pairs)


def _as_pairs(plan: KeyPlan) -> list[Equality]:
    keys = [(terms[0], term) for terms in plan.keys for term in terms]
    return [*keys, *plan.conditions, *plan.residual]


@given(equality_graphs)
def test_the_plan_of_any_equalities_is_equivalent_to_them(equalities: list[Equality]) -> None:
    rewritten = _as_pairs(plan_keys(ALIASES, equalities))
    for values in product((None, 1, 2), repeat=len(TERMS)):
        row = dict(zip(TERMS, values, strict=True))
        assert _holds(rewritten, row) == _holds(equalities, row)


@given(equality_graphs)
def test_keys_are_aligned_conditions_stay_in_one_alias_and_the_rest_spans_two(
    equalities: list[Equality],
) -> None:
    plan = plan_keys(ALIASES, equalities)
    assert all(tuple(term.alias for term in terms) == ALIASES for terms in plan.keys)
    assert all(left.alias == right.alias for left, right in plan.conditions)
    assert all(left.alias != right.alias for left, right in plan.residual)


def test_key_columns_come_in_the_order_in_which_their_classes_appear() -> None:
    x, y = ({term.alias: term for term in TERMS if term.below == name} for name in ("x", "y"))
    plan = plan_keys(("A", "B"), [(y["B"], y["A"]), (x["A"], x["B"])])
    assert [terms[0].below for terms in plan.keys] == ["y", "x"]


def test_an_equality_inside_a_stream_connects_the_keys_of_the_others() -> None:
    a_x, a_y, b_x, _, c_x, _ = TERMS
    plan = plan_keys(ALIASES, [(a_x, b_x), (c_x, a_y), (a_x, a_y)])
    assert plan.keys == ((a_x, b_x, c_x),)
    assert plan.conditions == ((a_x, a_y),)
