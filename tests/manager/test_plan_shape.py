"""What the shape of a plan says of families: which operators have parted from their kin."""

from __future__ import annotations

import pytest

from anabranch.manager.plan_shape import OperatorShape, PlanShape


@pytest.mark.parametrize(
    ("families", "kindred", "parted"),
    [
        ((0, 0, 0), (0, 0, 0), ()),
        ((0, 1, 1), (0, 0, 0), (0,)),
        ((0, 1, 2), (0, 0, 0), (1, 2)),
        ((0, 1, 2), (0, 1, 2), ()),
        ((0, 1, 0, 3, 4), (0, 0, 0, 3, 3), (1, 4)),
    ],
    ids=["fused", "the lowest apart", "all apart", "no kin", "two kins"],
)
def test_operators_that_have_parted_are_those_outside_of_the_largest_family_of_their_kin(
    families: tuple[int, ...], kindred: tuple[int, ...], parted: tuple[int, ...]
) -> None:
    operators = tuple(
        OperatorShape(n, f"op{n}", (n,), family=family, kindred=kin)
        for n, (family, kin) in enumerate(zip(families, kindred, strict=True))
    )
    assert PlanShape(operators, 4).parted == parted
