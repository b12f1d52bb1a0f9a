"""Cost models turn a snapshot into the table that redistribution reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.errors import ConfigError
from anabranch.manager.costs import CpuTime, MemoryShare, NetworkOutputRate
from anabranch.manager.costs.cost_table import cost_table, mean_table, text_of
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.routing import Everywhere, Routing, Spread
from tests.manager.placed import GROUPS, placed, plan_of
from tests.manager.snapshots import operator, processor, snapshot


def test_the_share_of_memory_is_that_of_the_budget() -> None:
    table = cost_table(MemoryShare(), placed([0, 0, 1], 2, sizes=[30, 10, 50], memory=100))
    assert (table.cost(0), table.cost(1)) == (0.4, 0.5)
    assert (table.share(0, 0), table.share(0, 1), table.share(1, 2)) == pytest.approx((0.75, 0.25, 1.0))


def test_without_a_budget_it_is_the_share_of_all_state() -> None:
    table = cost_table(MemoryShare(), placed([0, 0, 1], 2, sizes=[30, 10, 60]))
    assert (table.cost(0), table.cost(1)) == (0.4, 0.6)


def test_the_output_rate_counts_rows_that_leave_a_processor() -> None:
    fed_by = {2: (0, 1), 3: (2,)}
    table = cost_table(NetworkOutputRate(), placed([0, 1, 1, 1], 2, fed_by=fed_by, results=[200, 70, 300, 900]))
    assert dict(table.costs[0]) == {0: 2.0}
    assert dict(table.costs[1]) == {1: 0.0, 2: 0.0, 3: 0.0}, (
        "its neighbour is there too, and the last has none above it"
    )


def test_equation_6_2_gives_each_operator_its_share_of_what_its_processor_sends() -> None:
    fed_by = {3: (0, 1, 2)}
    table = cost_table(NetworkOutputRate(), placed([0, 0, 0, 1], 2, fed_by=fed_by, results=[100, 300, 0, 50]))
    assert table.cost(0) == 4.0
    assert [table.share(0, n) for n in range(3)] == [0.25, 0.75, 0.0]


def test_operators_that_run_fused_exchange_nothing_and_those_that_run_apart_do_wherever_they_are_spread() -> None:
    spread = Routing((0, 1, 0, 1))
    plan = plan_of(2, {1: (0,)})
    both = [operator([5], number=n, results=50) for n in range(2)]
    seen = snapshot(processor(0, *both), processor(1, *both), plan=plan, routings=(spread,) * 2, arrived=100)
    assert cost_table(NetworkOutputRate(), seen).cost(0) == 0.5
    fused = plan.__class__(
        tuple(one.__class__(one.number, one.name, one.ports, family=0, edges=one.edges) for one in plan.operators),
        GROUPS,
    )
    seen = snapshot(processor(0, *both), processor(1, *both), plan=fused, routings=(spread,) * 2, arrived=100)
    assert cost_table(NetworkOutputRate(), seen).cost(0) == 0.0


def test_cpu_time_is_a_share_of_the_time() -> None:
    table = cost_table(CpuTime(), placed([0, 0, 1], 2, cpu=[0.2, 0.1, 0.5]))
    assert table.cost(0) == pytest.approx(0.3)
    assert table.cost(1) == 0.5


def test_an_operator_that_is_spread_or_diffused_is_at_home_nowhere() -> None:
    hosts = (0, 1)
    diffused = Routing((0,) * GROUPS).diffuse([2], (Spread(hosts, (1.0, 1.0)), Everywhere(hosts)))
    routings = (Routing((0, 0, 1, 1)), Routing((1,) * GROUPS), diffused)
    seen = snapshot(processor(0), processor(1), plan=plan_of(3), routings=routings)
    table = cost_table(CpuTime(), seen)
    assert [table.operators[n].home for n in range(3)] == [None, 1, None]


def test_a_move_takes_the_cost_along_and_says_which_edges_it_removes() -> None:
    seen = placed([0, 1, 1, 0], 3, fed_by={1: (0,), 2: (0, 1), 3: (0,)}, cpu=[0.4, 0.1, 0.1, 0.2])
    table = cost_table(CpuTime(), seen)
    assert [table.edges_removed(0, p) for p in range(3)] == [0, 1, -1]
    moved = table.moved(0, 1)
    assert moved.operators[0].home == 1
    assert (moved.cost(0), moved.cost(1)) == (pytest.approx(0.2), pytest.approx(0.6))
    assert table.cost(0) == pytest.approx(0.6), "tables are not changed"


def test_the_mean_of_tables_is_that_of_each_operator() -> None:
    tables = [cost_table(CpuTime(), placed([0, 1], 2, cpu=cpu)) for cpu in ([0.2, 0.4], [0.4, 0.0])]
    assert mean_table(tables).cost(0) == pytest.approx(0.3)
    assert mean_table(tables).cost(1) == pytest.approx(0.2)


class Nonsense:
    def costs(self, snapshot: Snapshot) -> Mapping[int, Mapping[int, float]]:
        return {0: 1.0}  # type: ignore[dict-item]


def test_what_is_no_table_is_refused_and_a_cost_without_words_is_a_number() -> None:
    with pytest.raises(ConfigError, match="costs\\(\\) must give a dict of dicts"):
        cost_table(Nonsense(), placed([0], 1))
    assert text_of(Nonsense(), 0.125) == "0.125"
