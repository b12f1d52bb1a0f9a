"""Allocations: who runs fused where, what goes on where it was, and what a reallocation leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.allocation import Allocation, KnownAllocation, continued, parted, reallocated, rejoined
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


def together_again(allocation: Allocation, operator: int, closed: Sequence[int] = ()) -> Allocation | None:
    return rejoined(allocation, [0] * len(allocation.placements), operator, closed)


def test_what_diffusion_sets_apart_joins_its_kin_again_wherever_that_has_gone() -> None:
    spread = Allocation((SPREAD,) * 3, (0, 0, 0))
    apart = parted(spread, 1)
    assert (families(apart), apart.apart, apart.parted) == ([{0, 2}, {1}], {1}, {1: (0, 2)})
    # What fed the operator and what it fed do not run fused without it, and groups of each move by themselves.
    moved_since = replace(apart, placements=(whole(1), SPREAD, whole(2)), families=(0, 1, 2))
    assert together_again(moved_since, 1, closed=[2]) is None, "groups of its kin are diffused"
    joined = together_again(moved_since, 1)
    assert joined == Allocation((whole(1),) * 3, (0, 0, 0))


def test_who_was_reallocated_since_is_no_kin_any_more() -> None:
    apart = parted(Allocation((SPREAD,) * 3, (0, 0, 0)), 1)
    left = moved(apart, [2], whole(2))
    assert left.parted == {1: (0,)}
    assert families(together_again(left, 1)) == [{0, 1}, {2}]
    alone = moved(left, [0], whole(2))
    joined = together_again(alone, 1)
    assert (joined.placements[1], joined.apart, joined.parted) == (SPREAD, frozenset(), {})
    assert moved(apart, [1], whole(0)).parted == {}, "a user's word counts more"


def test_two_that_are_apart_join_in_any_order_once_nothing_of_their_kin_is_diffused() -> None:
    both = parted(parted(Allocation((SPREAD,) * 3, (0, 0, 0)), 2), 1)
    assert both.parted == {2: (0, 1), 1: (0,)}
    assert together_again(both, 2) is None, "the other one is apart itself"
    first = together_again(both, 1)
    assert families(first) == [{0, 1}, {2}]
    assert families(together_again(first, 2)) == [{0, 1, 2}]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["part", "rejoin", "move", "set apart"]), st.integers(0, 2)),
        max_size=12,
    )
)
def test_in_the_end_all_that_diffusion_has_set_apart_has_joined_its_kin(steps: list[tuple[int, str, int]]) -> None:
    allocation, stays = Allocation((SPREAD,) * 4, (0,) * 4), set[int]()
    for n, what, processor in steps:
        if what == "part" and n not in allocation.apart and allocation.families.count(allocation.families[n]) > 1:
            allocation = parted(allocation, n)
        elif what == "rejoin" and n in allocation.parted:
            allocation = together_again(allocation, n) or allocation
        elif what in ("move", "set apart"):
            allocation = moved(allocation, [n], whole(processor), apart=what == "set apart")
            stays = stays | {n}
        assert allocation.parted.keys() <= allocation.apart
    while allocation.parted:
        now = [joined for n in allocation.parted if (joined := together_again(allocation, n)) is not None]
        assert now, "some operator can always go first"
        allocation = now[0]
    for family in families(allocation):
        assert len({allocation.placements[n] for n in family}) == 1
    assert any({0, 1, 2, 3} - stays <= family for family in families(allocation))


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
    waiting = known(apart=frozenset("a"), parted={"a": ("b", "gone")})
    assert continued(waiting, ["b", "a"], (SPREAD,) * 2, (0, 0), PROCESSORS).parted == {1: (0,)}


def test_a_program_that_wants_another_placement_is_noticed() -> None:
    assert known().is_wanted(PROCESSORS, ["a", "new"], [SPREAD, whole(1)])
    assert not known().is_wanted(PROCESSORS, ["a"], [whole(1)])
    assert not known().is_wanted(2, ["a"], [SPREAD])
