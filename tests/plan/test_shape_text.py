"""A shape as text is read back as the same shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.language.shape import read_shape
from anabranch.plan.arrangement import Shape
from anabranch.plan.shape_text import shape_text

aliases = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=6),
        st.text("aB ()`,.\n", min_size=1, max_size=5),
        st.sampled_from(["auto", "Multiway", "A", "a"]),
    ),
    min_size=1,
    max_size=8,
    unique=True,
).map(tuple)


@st.composite
def named_shapes(draw: st.DrawFn) -> tuple[Shape, tuple[str, ...]]:
    """Aliases, and a tree that has each of them once and joins two parts or more everywhere."""
    names = draw(aliases)
    parts: list[Shape] = list(draw(st.permutations(range(len(names)))))
    while len(parts) > 1:
        size = draw(st.integers(2, len(parts)))
        first = draw(st.integers(0, len(parts) - size))
        parts[first : first + size] = [tuple(parts[first : first + size])]
    return parts[0], names


@given(named_shapes())
def test_a_shape_is_read_back_from_its_text(shape_and_aliases: tuple[Shape, tuple[str, ...]]) -> None:
    shape, names = shape_and_aliases
    assert read_shape(shape_text(shape, names), names) == shape


@given(aliases)
def test_the_shape_that_is_left_to_us_is_read_back_as_such(names: tuple[str, ...]) -> None:
    assert shape_text(None, names) == "multiway"
    assert read_shape(shape_text(None, names), names) is None


@pytest.mark.parametrize(
    ("shape", "text"),
    [((((0, 1), 2), 3), "((A B) C) `D (2)`"), ((0, 1, 2, 3), "A B C `D (2)`"), (((0, 3), (2, 1)), "(A `D (2)`) (C B)")],
)
def test_parentheses_hold_what_one_operator_joins(shape: Shape, text: str) -> None:
    assert shape_text(shape, ("A", "B", "C", "D (2)")) == text
