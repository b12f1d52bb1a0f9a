"""What a look at a checkpoint says of results that are owed."""

from __future__ import annotations

from anabranch.checkpoint.survey import _spilled
from anabranch.state.generation import Generation
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from tests.checkpoint.fabricated import PLAN


def test_what_a_join_with_windows_owes_is_told_as_a_bound() -> None:
    pieces = (Slice(RunFile("spilled", 30, 3_000, 0, None, None), 0, 30),)
    both = GroupSet.of(4, [0, 1])
    generations = tuple(Generation(n, both, None, (pieces, pieces), (1_000, 2_000), (5, 7)) for n in (1, 2))
    manifest = Manifest((Spine(), Spine()), (OperatorState(generations=generations),))
    [entry] = _spilled(0, manifest, PLAN, 4)
    assert (entry.owing, entry.owed, entry.at_most) == (2, 2 * (5 + 7), True)
    unbounded = [{**source, "window (us)": None} for source in PLAN["sources"]]
    [entry] = _spilled(0, manifest, {**PLAN, "sources": unbounded}, 4)
    assert (entry.owed, entry.at_most) == (24, False)
