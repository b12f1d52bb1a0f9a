"""What a processor has, and gets rows of, is what routings say: all rows that are sent to it, and no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.placement import even_placement
from anabranch.plan.routing import Routing, processors_of
from anabranch.state.share import groups_by_port, home_groups, port_groups
from tests.oracle.profiles import examples
from tests.plan.routings import routings

group_numbers = st.integers(0, 10).map(lambda bits: 1 << bits)
PROCESSORS = 5


@examples(60)
@given(groups=group_numbers, data=st.data())
def test_the_groups_of_all_processors_are_all_groups(groups: int, data: st.DataObject) -> None:
    few = groups <= 64
    routing = data.draw(routings(groups, PROCESSORS, 1)) if few else Routing(even_placement(groups, 3))
    owned = [home_groups(routing, p).numbers().tolist() for p in range(PROCESSORS)]
    assert sorted(group for part in owned for group in part) == list(range(len(routing.placement)))
    assert all(routing.placement[group] == p for p, part in enumerate(owned) for group in part)


@examples(60)
@given(data=st.data())
def test_a_processor_gets_rows_of_the_groups_that_are_its_own_at_a_port(data: st.DataObject) -> None:
    routing = data.draw(routings(16, PROCESSORS, 2))
    hashes = np.random.default_rng(7).integers(0, 2**64, 16 * 64, np.uint64)
    groups = np.repeat(np.arange(16), 64)
    by_port = [groups_by_port([routing], [0, 0], p) for p in range(PROCESSORS)]
    for n in range(2):
        rows, processors = processors_of(routing.port(n), groups, hashes)
        for p in range(PROCESSORS):
            own = by_port[p][n]
            assert own == port_groups(routing.port(n), p)
            assert set(groups[rows[processors == p]].tolist()) <= set(own.numbers().tolist())
            hosted = [group for group in range(16) if p in routing.hosts(group)]
            assert own.numbers().tolist() == hosted
