"""The m-way symmetric join: of a batch with the state, and of parts of the state with each other (SPEC section 1).

A batch (`join_deltas`). For every combination that contains at least one new row there is a last new input i: the
combination is (new row of i) x (old or new rows of the inputs before i) x (old rows of the inputs after i). Enumerating
by i produces every new combination exactly once, in whatever order rows arrived.

Clean-up (`join_across`). Of two parts of the state that were active at different times, the combinations within either
part are out already. Those with a row of each are told apart by the first input i whose row is of another part than
the rows before it: (old, .., old, new, any, ..) and (new, .., new, old, any, ..), for i from the second input on. These
are what the incremental formula of paper 1 (4.2, equation 1) leaves when A2.B2.C2 is taken away from it, but nothing is
produced only to be taken away.

The work is done per distinct hash ("wanted"): find it at all inputs and gather its rows (`gather`), then enumerate
(`combinations`), hashes in blocks so that no more than about `gather_rows` rows are gathered at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from anabranch.kernel.join.combinations import JoinShape, Matches, Part, enumerate_parts
from anabranch.kernel.join.gather import Segments, distinct, find, gather, weights
from anabranch.kernel.probe import blocks
from anabranch.state.runs.run import Segment


def join_deltas(shape: JoinShape, old: Segments, deltas: Sequence[Segment]) -> Iterator[Matches]:
    """All combinations of `old` state and `deltas` that contain at least one delta row.

    `old[i]` are the sorted segments of input i, `deltas[i]` its sorted new rows.
    """
    wanted = distinct(deltas)
    if len(wanted) == 0:
        return
    new = [[delta] for delta in deltas]
    matching = find(wanted, old, new)
    useful = np.flatnonzero(matching.everywhere())
    inputs = len(deltas)
    patterns = [[Part.BOTH] * i + [Part.NEW] + [Part.OLD] * (inputs - 1 - i) for i in range(inputs)]
    for first, last in blocks(weights(shape, old, new, matching)[useful], shape.gather_rows):
        block = useful[first:last]
        candidates = gather(shape, old, new, matching, block, narrow_new=False)
        for pattern in patterns:
            yield from enumerate_parts(shape, candidates, pattern, wanted[block])


def join_across(shape: JoinShape, old: Segments, new: Segments) -> Iterator[Matches]:
    """All combinations with at least one old row and at least one new row."""
    wanted = distinct([segment for segments in new for segment in segments])
    if len(wanted) == 0:
        return
    matching = find(wanted, old, new)
    useful = np.flatnonzero(matching.everywhere() & (np.add.reduce(matching.old_rows) > 0))
    inputs = len(new)
    patterns = [
        [before] * i + [then] + [Part.BOTH] * (inputs - 1 - i)
        for i in range(1, inputs)
        for before, then in ((Part.OLD, Part.NEW), (Part.NEW, Part.OLD))
    ]
    for first, last in blocks(weights(shape, old, new, matching)[useful], shape.gather_rows):
        block = useful[first:last]
        candidates = gather(shape, old, new, matching, block, narrow_new=True)
        for pattern in patterns:
            yield from enumerate_parts(shape, candidates, pattern, wanted[block])


def join_generations(shape: JoinShape, generations: Sequence[Segments]) -> Iterator[Matches]:
    """All combinations that span generations: what each half owes by itself, and what the halves owe to each other.

    So every row is read once per doubling of the number of generations.
    """
    if len(generations) < 2:
        return
    middle = len(generations) // 2
    halves = generations[:middle], generations[middle:]
    for half in halves:
        yield from join_generations(shape, half)
    old, new = ([[s for part in parts for s in part] for parts in zip(*half, strict=True)] for half in halves)
    yield from join_across(shape, old, new)
