"""Statistics of partition groups: what is in them survives being written down, spread out and put together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics
from tests.oracle.profiles import examples

COUNT = 8


@st.composite
def known(draw: st.DrawFn, ports: int = 2) -> Statistics:
    """Statistics of some of the groups, all different from 0."""
    groups = sorted(draw(st.sets(st.integers(0, COUNT - 1))))
    counts = [draw(st.lists(st.integers(1, 2**40), min_size=len(groups), max_size=len(groups))) for _ in range(5)]
    recent, inserted = (np.array(values, dtype=np.float64) for values in counts[:2])
    sizes, produced = (np.array(values, dtype=np.int64) for values in counts[2:4])
    rows = len(groups) * ports
    arrivals = np.array(draw(st.lists(st.integers(0, 2**40), min_size=rows, max_size=rows)))
    return Statistics(
        np.array(groups, dtype=np.int64),
        sizes,
        produced,
        recent,
        inserted,
        arrivals.astype(np.int64).reshape(len(groups), ports),
    )


@examples(50)
@given(statistics=known())
def test_statistics_come_back_from_json_as_they_were(statistics: Statistics) -> None:
    back = Statistics.from_json(json.loads(json.dumps(statistics.to_json())))
    assert back == statistics
    assert back.arrivals.shape == statistics.arrivals.shape


@examples(50)
@given(statistics=known())
def test_all_groups_of_which_some_are_present_are_the_same_statistics(statistics: Statistics) -> None:
    dense = statistics.dense(COUNT)
    assert len(dense.groups) == len(dense.arrivals) == COUNT
    assert dense.present() == statistics
    assert dense.arrived.sum() == statistics.arrivals.sum()


@examples(50)
@given(statistics=known(), chosen=st.sets(st.integers(0, COUNT - 1)))
def test_parts_of_statistics_put_together_are_the_whole(statistics: Statistics, chosen: set[int]) -> None:
    part = GroupSet.of(COUNT, chosen)
    whole = statistics.of_groups(part).union(statistics.of_groups(GroupSet.all(COUNT) - part))
    assert whole.dense(COUNT, 2) == statistics.dense(COUNT, 2)


@pytest.mark.parametrize("ports", [0, 1, 3])
def test_nothing_is_known_of_the_ports_of_no_group(ports: int) -> None:
    nothing = Statistics().dense(COUNT, ports)
    assert nothing.arrivals.shape == (COUNT, ports)
    assert nothing.arrived.tolist() == [0] * COUNT


@examples(50)
@given(some=known(), others=known())
def test_statistics_of_groups_in_common_are_added_up(some: Statistics, others: Statistics) -> None:
    both, a, b = (each.dense(COUNT, 2) for each in (some.union(others), some, others))
    assert both.bytes.tolist() == (a.bytes + b.bytes).tolist()
    assert both.produced.tolist() == (a.produced + b.produced).tolist()
    assert both.recent.tolist() == (a.recent + b.recent).tolist()
    assert both.arrivals.tolist() == (a.arrivals + b.arrivals).tolist()
    assert both.inserted.tolist() == np.maximum(a.inserted, b.inserted).tolist()


@examples(20)
@given(statistics=known())
def test_what_begins_anew_adds_nothing(statistics: Statistics) -> None:
    assert statistics.union(statistics.begun_anew()) == statistics
