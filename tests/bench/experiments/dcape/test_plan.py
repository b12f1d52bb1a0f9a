"""The thesis's plans, and what it claims of them, by counts that need no Spark."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from anabranch.bench.experiments.dcape.plan import GROUPS, JOINS, PLANS, SINGLES, TWENTY, PlacedPlan, PlacementCosts
from anabranch.manager.patterns import FewestRounds, Grouping, Pattern, RoundRobin
from anabranch.manager.patterns.operator_graph import APPLIED, JOIN
from anabranch.manager.policies.degradation import Degradation
from tests.manager.placed import ROWS, PlacedCluster

SEVERAL = range(2, 6)
LIFE, BATCHES = 8, 16


@pytest.fixture(scope="module")
def twenty() -> PlacedPlan:
    return PlacedPlan.of(TWENTY)


def costs(placed: PlacedPlan, pattern: Pattern, processors: int) -> PlacementCosts:
    made = placed.made(placed.plan.input(64), 1)
    return placed.costs(placed.place(pattern, processors), made[-1])


def test_plans_have_the_numbers_of_the_thesis(twenty: PlacedPlan) -> None:
    kinds = [operator.kind for operator in twenty.graph.operators]
    assert (kinds.count(JOIN), kinds.count(APPLIED)) == (5, 15)
    assert (max(twenty.heights), len(TWENTY.streams)) == (9, 6), "depth and breadth"
    for plan, kind in ((SINGLES, APPLIED), (JOINS, JOIN)):
        placed = PlacedPlan.of(plan)
        assert [operator.kind for operator in placed.graph.operators] == [kind] * 5
        assert max(placed.heights) == 5


def test_operators_make_what_comes_to_them_and_joins_twice_as_much(twenty: PlacedPlan) -> None:
    made = twenty.made(TWENTY.input(64), 1)[-1]
    assert set(made[:15]) == {64}
    assert all(2 * (below + 64) == made for below, made in pairwise(made[15:19]))


def test_grouping_needs_fewer_rounds_and_edges_than_round_robin(twenty: PlacedPlan) -> None:
    for processors in SEVERAL:
        robin, grouping = costs(twenty, RoundRobin(), processors), costs(twenty, Grouping(), processors)
        assert grouping.rounds < robin.rounds
        assert grouping.crossing < robin.crossing / 2, "8 and 17 in figures 5.2 and 5.3"
        assert grouping.exchanged < robin.exchanged


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_fewest_rounds_needs_no_more_rounds_and_rows_than_grouping(plan: object) -> None:
    placed = PlacedPlan.of(plan)  # type: ignore[arg-type]
    for processors in range(1, 6):
        ours, grouping = costs(placed, FewestRounds(), processors), costs(placed, Grouping(), processors)
        assert ours.rounds <= grouping.rounds
        assert ours.exchanged <= grouping.exchanged


@pytest.mark.parametrize("processors", SEVERAL)
@pytest.mark.parametrize(("pattern", "share"), [(RoundRobin(), 0.5), (Grouping(), 1.0)], ids=["bad", "good"])
def test_degradation_halves_what_a_bad_start_exchanges_and_spoils_no_good_one(
    twenty: PlacedPlan, pattern: Pattern, share: float, processors: int
) -> None:
    given = TWENTY.input(64, LIFE)
    made = twenty.made(given, BATCHES)
    arrived = [sum(given.batch(n, stream).num_rows for stream in range(6)) for n in range(BATCHES)]
    start = twenty.place(pattern, processors)
    fed_by = {n: below for n in range(20) if (below := twenty.graph.below(n))}
    cluster = PlacedCluster(Degradation(), [placement[0] for placement in start], processors, fed_by=fed_by)
    cluster.run(BATCHES, lambda n: {"results": np.rint(made[n - 1] * ROWS / arrived[n - 1]).astype(int).tolist()})
    before = twenty.costs(start, made[-1])
    after = twenty.costs([(home,) * GROUPS for home in cluster.homes], made[-1])
    assert 1 <= len(cluster.moves) <= 6
    assert after.exchanged <= share * before.exchanged
    assert after.sent <= share * before.sent
    assert after.rounds <= before.rounds
