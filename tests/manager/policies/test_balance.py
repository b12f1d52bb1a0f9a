"""Balance moves operators from the heaviest processor to the lightest until they are even, and never to and fro."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.costs import CpuTime, MemoryShare
from anabranch.manager.costs.cost_table import CostTable, cost_table
from anabranch.manager.policies.balance import Balance
from anabranch.manager.policies.redistribution import FIRST_REST, PATIENCE, SAMPLE, Eligible, check_eligible
from tests.manager.placed import PlacedCluster, placed


def after(table: CostTable, policy: Balance, eligible: Eligible | None = None) -> CostTable:
    for operator, receiver, _ in policy.moves(table, eligible or Eligible()):
        table = table.moved(operator, receiver)
    return table


def test_the_heaviest_gives_to_the_lightest_until_all_are_even() -> None:
    table = cost_table(CpuTime(), placed([0] * 4, 2, cpu=[0.1, 0.2, 0.3, 0.4]))
    assert [after(table, Balance()).cost(p) for p in (0, 1)] == [pytest.approx(0.5), pytest.approx(0.5)]


def test_processors_that_are_nearly_even_are_left_alone() -> None:
    table = cost_table(CpuTime(), placed([0, 0, 1], 2, cpu=[0.45, 0.05, 0.41]))
    assert list(Balance(difference=0.2).moves(table, Eligible())) == []
    assert len(list(Balance(difference=0.1).moves(table, Eligible()))) == 1
    assert list(Balance(difference=1.0).moves(cost_table(CpuTime(), placed([0, 0], 2, cpu=[1, 1])), Eligible())) == []


def test_a_single_heavy_operator_stays_where_it_is() -> None:
    table = cost_table(CpuTime(), placed([0, 1], 2, cpu=[0.9, 0.1]))
    assert list(Balance().moves(table, Eligible())) == []


def test_only_what_is_eligible_moves_and_only_eligible_processors_get_it() -> None:
    table = cost_table(MemoryShare(), placed([0] * 3, 3, sizes=[2_000, 1_000, 3_000]))
    allowed = check_eligible(["op0", "op1"], [0, 2], "1500")
    assert [move[:2] for move in Balance().moves(table, allowed)] == [(1, 2)]
    assert [move[:2] for move in Balance().moves(table, check_eligible(None, None, ("2k", "3k")))][:1] == [(2, 1)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=12), st.floats(0, 1), st.integers(4, 5)
)
def test_no_move_makes_any_processor_as_heavy_as_the_heaviest_was(
    operators: Sequence[tuple[int, float]], difference: float, processors: int
) -> None:
    table = cost_table(
        CpuTime(), placed([home for home, _ in operators], processors, cpu=[cost for _, cost in operators])
    )
    total, seen = sum(map(table.cost, table.processors)), []
    for operator, receiver, _ in Balance(difference=difference).moves(table, Eligible()):
        sender = table.operators[operator].home
        assert sender is not None
        before = max(table.cost(sender), table.cost(receiver))
        table = table.moved(operator, receiver)
        assert max(table.cost(sender), table.cost(receiver)) <= before
        seen.append(operator)
    assert len(seen) == len(set(seen))
    assert sum(map(table.cost, table.processors)) == pytest.approx(total)


def test_it_decides_after_a_sample_and_then_keeps_still() -> None:
    cluster = PlacedCluster(Balance(), [0] * 4, 2)
    cluster.run(100, lambda _: {"cpu": [0.1, 0.2, 0.3, 0.4]})
    assert {batch for batch, *_ in cluster.moves} == {SAMPLE}
    assert len(cluster.moves) <= 2


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 5))
def test_a_load_that_comes_and_goes_moves_no_operator_more_than_a_few_times(length: int, count: int) -> None:
    batches = 400
    cluster = PlacedCluster(Balance(), [n % 2 for n in range(count)], 2)
    turned = [[0.8 if (n + turn) % 2 else 0.1 for n in range(count)] for turn in (0, 1)]
    cluster.run(batches, lambda batch: {"cpu": turned[batch // length % 2]})
    for n in range(count):
        own = [batch for batch, operator, _ in cluster.moves if operator == n]
        assert len(own) <= 1 + log2(1 + batches / FIRST_REST)
        rests = [later - earlier for earlier, later in itertools.pairwise(own)]
        assert all(rest >= FIRST_REST * 2**nth for nth, rest in enumerate(rests))


def test_what_is_not_carried_out_is_not_asked_for_again_at_once() -> None:
    policy, asked = Balance(), []
    for batch in range(1, 60):
        seen = placed([0, 0], 2, cpu=[0.4, 0.4], step=batch)
        asked += [batch for _ in policy.decide(seen)]
    assert asked[0] == SAMPLE
    assert asked[1] >= SAMPLE + PATIENCE
    assert len(asked) <= 3


def test_what_was_given_up_at_once_is_not_waited_for_and_not_asked_for_again_at_once() -> None:
    """As when a query migrated, or the operator was gone: what is to be done is in snapshots, and this is not."""
    policy, asked, waiting = Balance(), [], frozenset({"op0", "op1"})
    for batch in range(1, 60):
        seen = placed([0, 0], 2, cpu=[0.4, 0.4], step=batch)
        waits = waiting if not asked or batch < asked[0] + 3 else frozenset()
        asked += [batch for _ in policy.decide(replace(seen, reallocating=waits))]
    assert asked[0] == SAMPLE
    assert asked[1] < asked[0] + PATIENCE, "the other one, that has not been asked for"
    assert len(asked) <= 6


def test_a_batch_without_rows_says_nothing() -> None:
    policy = Balance()
    for batch in range(20):
        seen = placed([0, 0], 2, cpu=[0.4, 0.4], step=batch)
        idle = seen.__class__(seen.step, seen.time, seen.processors, plan=seen.plan, routings=seen.routings)
        assert list(policy.decide(idle)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": CpuTime}, "cost must be a cost model such as"),
        ({"difference": 2}, "difference is a share from 0"),
        ({"operators": "op1"}, "operators must be a list"),
        ({"processors": ["a"]}, "processors must be a list"),
        ({"state_size": ("2g", "1g")}, "from a size to a larger one"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Balance(**arguments)  # type: ignore[arg-type]
