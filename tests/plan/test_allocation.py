"""Allocations: who runs fused where, what goes on where it was, and what a reallocation leaves alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.allocation import Allocation, KnownAllocation, continued, reallocated
from anabranch.plan.placement import Placement

GROUPS, PROCESSORS = 4, 3
SPREAD = (0, 0, 1, 2)


def whole(processor: int) -> Placement:
    return (processor,) * GROUPS


def moved(
    allocation: Allocation, operators: list[int], placement: Placement | None, kindred: list[int] | None = None, **more
) -> Allocation:
    kin = kindred or [0] * len(allocation.placements)
    return reallocated(allocation, kin, operators, placement, hosts=range(PROCESSORS), **more)


def families(allocation: Allocation) -> list[set[int]]:
    """The operators that may run fused, without those that may not."""
    labels = allocation.families or ()
    sets = {frozenset(n for n, other in enumerate(labels) if other == label) for label in labels}
    return sorted(map(set, sets), key=min)


def test_an_operator_parts_from_its_family_and_enters_those_at_its_new_place() -> None:
    spread = Allocation((SPREAD,) * 3, (0, 0, 0))
    alone = moved(spread, [2], whole(1))
    assert (alone.placements[2], families(alone)) == (whole(1), [{0, 1}, {2}])
    together = moved(alone, [0], whole(1))
    assert families(together) == [{0, 2}, {1}]
    assert families(moved(together, [0, 2], None)) == [{0, 1, 2}], "spread kin is where the spread one goes"
    assert moved(together, [0, 2], None).placements == (SPREAD,) * 3


def test_what_is_no_kin_is_never_entered_and_neither_is_what_is_closed_or_apart() -> None:
    allocation = Allocation((whole(0), whole(1), whole(1)), (0, 1, 2))
    assert families(moved(allocation, [0], whole(1), kindred=[0, 0, 2])) == [{0, 1}, {2}]
    assert families(moved(allocation, [0], whole(1), closed=[1])) == [{0, 2}, {1}]
    apart = moved(allocation, [1], whole(1), apart=True)
    assert (families(moved(apart, [0], whole(1))), apart.apart) == ([{0, 2}, {1}], {1})
    assert families(moved(apart, [1], whole(1))) == [{0}, {1, 2}], "until it is reallocated again"


@given(
    st.lists(st.sampled_from([SPREAD, whole(0), whole(1)]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, whole(0), whole(2)]), st.booleans()), max_size=5),
)
def test_operators_of_a_family_are_placed_alike_whatever_happens(
    placements: list[Placement], changes: list[tuple[int, Placement | None, bool]]
) -> None:
    allocation = Allocation(tuple(placements), tuple(range(len(placements))))
    for operator, placement, apart in changes:
        n = operator % len(placements)
        before, allocation = allocation, moved(allocation, [n], placement, apart=apart)
        for family in families(allocation):
            assert len({allocation.placements[m] for m in family}) == 1
            assert len(family) == 1 or not family & allocation.apart
        others = [m for m in range(len(placements)) if m != n]
        assert [allocation.placements[m] for m in others] == [before.placements[m] for m in others]


def known(**changes) -> KnownAllocation:
    entries = {
        "processors": PROCESSORS,
        "placements": {"a": whole(2), "b": SPREAD},
        "families": {"a": 0, "b": 1},
        "apart": frozenset(),
        "wanted_processors": PROCESSORS,
        "wanted": {"a": SPREAD, "b": SPREAD},
    }
    return KnownAllocation(**{**entries, **changes})


def test_known_operators_stay_and_a_new_one_goes_where_its_kin_is() -> None:
    both = continued(known(), ["a", "b", "new"], (SPREAD,) * 3, (0, 1, 0), PROCESSORS)
    assert both.placements == (whole(2), SPREAD, whole(2))
    assert families(both) == [{0, 2}, {1}]
    alone = continued(known(apart=frozenset("a")), ["a", "b", "new"], (SPREAD,) * 3, (0, 1, 0), PROCESSORS)
    assert (alone.placements[2], families(alone)) == (SPREAD, [{0}, {1}, {2}])
    assert alone.apart == {0}


def test_a_program_that_wants_another_placement_is_noticed() -> None:
    assert known().is_wanted(PROCESSORS, ["a", "new"], [SPREAD, whole(1)])
    assert not known().is_wanted(PROCESSORS, ["a"], [whole(1)])
    assert not known().is_wanted(2, ["a"], [SPREAD])
