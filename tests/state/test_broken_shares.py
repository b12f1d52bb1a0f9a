"""What breaks the rules of shares is found, and nothing else: edits of manifests against plain lists of rows."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.routing import Everywhere, Routing, Spread
from anabranch.state.broken_shares import broken_shares, listing_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from tests.oracle.profiles import examples
from tests.plan.routings import routings
from tests.state.segments import MemoryRuns, segment

GROUPS = 8
PROCESSORS = 3
ROWS = 4 * GROUPS  # four per group, in one file

pieces = st.tuples(st.integers(0, ROWS), st.integers(0, ROWS), st.none() | st.sets(st.integers(0, GROUPS - 1)))


def a_run() -> tuple[MemoryRuns, Slice]:
    runs = MemoryRuns()
    file = runs.write(segment([(n // 4) << 61 for n in range(ROWS)], None, id=list(range(ROWS))))
    return runs, Slice(file, 0, ROWS)


@examples(80)
@given(data=st.data())
def test_rows_that_are_listed_twice_or_at_the_wrong_processor_are_found(data: st.DataObject) -> None:
    """One port of a join with two; what is drawn may be right or wrong."""
    runs, whole = a_run()
    cuts = runs.cuts(GROUPS)
    routing = data.draw(routings(GROUPS, PROCESSORS, 2))
    manifests, listed = [], Counter[int]()
    misplaced = False
    for p in range(PROCESSORS):
        slices = []
        for first, last, groups in data.draw(st.lists(pieces, max_size=2)):
            start, stop = sorted((first, last))
            piece: Slice | None = Slice(whole.file, start, stop)
            if groups is not None:
                piece = piece.of_groups(GroupSet.of(GROUPS, groups), cuts)
            if piece is not None and piece.rows:
                slices.append(piece)
                rows = [n for n in range(piece.start, piece.stop) if piece.groups is None or n // 4 in groups]
                listed.update(rows)
                own = listing_groups(routing.port(0), p).mask()
                misplaced |= not all(own[n // 4] for n in rows)
        manifests.append(Manifest((Spine(tuple((piece,) for piece in slices)), Spine()), (OperatorState(),)))
    problems = [broken.problem for broken in broken_shares(manifests, [routing], [0, 0], cuts) if broken.port == 0]
    doubled = any(count > 1 for count in listed.values())
    assert any(" list" in text and " rows " in text and " of " in text for text in problems) == doubled
    assert any("belong to" in text for text in problems) == misplaced


@pytest.mark.parametrize(("port", "own"), [(0, [[5], [5]]), (1, [[5], []])])
def test_rows_of_the_spread_port_are_listed_by_any_host_and_others_by_the_home_alone(
    port: int, own: list[list[int]]
) -> None:
    hosts = (0, 1)
    routing = Routing((0,) * 5 + (0,) + (2,) * 2).diffuse([5], (Spread(hosts, (1.0, 1.0)), Everywhere(hosts)))
    chosen = [listing_groups(routing.port(port), p).numbers().tolist() for p in range(3)]
    assert chosen == [[0, 1, 2, 3, 4, *own[0]], own[1], [6, 7]]
