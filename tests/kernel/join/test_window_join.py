"""Joins of joined rows: a tree of window joins gives, batch after batch, what the definition of a result says.

A is joined with B on x, and the pairs with C on y. A pair carries both times and is stored by the newer one. Rows that
the min/max rule calls dead are removed from every state before each batch.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.delta import keep_after, sort_rows
from anabranch.kernel.join.combinations import UNBOUNDED, JoinShape
from anabranch.kernel.join.multiway import join_deltas
from anabranch.plan.watermark import InputTime, PortTime, SourceTime, Thresholds, can_be_late, thresholds
from anabranch.state.runs.run import HASH, TS, Segment
from tests.oracle.profiles import examples

BATCHES = 4
# The ports of the two operators: A and B of the lower one, pairs and C of the upper one.
PORTS = (((0,), (1,)), ((1,), (0,)), ((0, 1), (2,)), ((2,), (0, 1)))


class Row(NamedTuple):
    """A row of one of the streams. Keys are their own hashes."""

    x: int
    y: int
    ts: int
    batch: int


class Tree(NamedTuple):
    """The input, with windows and lateness; windows as in `JoinShape`."""

    rows: tuple[tuple[Row, ...], ...]
    windows: tuple[int, ...]
    lateness: tuple[int | None, ...]
    chunk_rows: int

    @property
    def times(self) -> list[InputTime]:
        return [
            InputTime(None if window == UNBOUNDED else window, lateness)
            for window, lateness in zip(self.windows, self.lateness, strict=True)
        ]

    def thresholds(self, newest: list[int | None]) -> Thresholds:
        """What is late and what is dead in ((A B) C)."""
        times = self.times
        sources = [SourceTime(j, time.lateness if can_be_late(times, j) else None) for j, time in enumerate(times)]
        ports = []
        for inside, outside in PORTS:
            windows = [window for i in inside if (window := times[i].window) is not None]
            ports.append(PortTime(inside, outside, min(windows, default=None)))
        return thresholds(sources, ports, newest)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    rows = st.builds(Row, st.integers(0, 1), st.integers(0, 1), st.integers(0, 30), st.integers(0, BATCHES - 1))
    windows = st.sampled_from([0, 3, 8, 20, UNBOUNDED])
    return Tree(
        draw(st.tuples(*[st.lists(rows, max_size=8).map(tuple)] * 3)),
        draw(st.tuples(*[windows] * 3)),
        draw(st.tuples(*[st.sampled_from([None, 0, 5, 30])] * 3)),
        draw(st.sampled_from([1, 3, 1_000])),
    )


def delta(rows: list[tuple[int, Row]], key: str) -> Segment:
    rows_of_input = pa.record_batch(
        {
            HASH: pa.array([getattr(row, key) for _, row in rows], pa.uint64()),
            TS: pa.array([row.ts for _, row in rows], pa.int64()),
            "y": pa.array([row.y for _, row in rows], pa.uint64()),
            "id": pa.array([n for n, _ in rows], pa.int64()),
        }
    )
    return sort_rows(rows_of_input)


def pairs(shape: JoinShape, old: list[list[Segment]], new: list[Segment]) -> Segment:
    """New results of A and B as rows of the upper operator: hashed on B's y, with both times."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in (HASH, "ts.A", "ts.B", "A", "B")}
    for matches in join_deltas(shape, old, new):
        a, b = (table.take(pa.array(rows)) for table, rows in zip(matches.tables, matches.rows, strict=True))
        found[HASH].append(b.column("y").to_numpy())
        for name, side in (("A", a), ("B", b)):
            found[f"ts.{name}"].append(side.column(TS).to_numpy())
            found[name].append(side.column("id").to_numpy())
    types = {HASH: np.uint64}
    columns = {name: np.concatenate([*parts, np.empty(0, types.get(name, np.int64))]) for name, parts in found.items()}
    return sort_rows(pa.record_batch({**columns, TS: np.maximum(columns["ts.A"], columns["ts.B"])}))


def answer(tree: Tree) -> tuple[Counter[tuple[int, ...]], list[list[tuple[int, Row]]]]:
    """What the tree of operators answers, and the rows that were on time."""
    w_a, w_b, w_c = tree.windows
    lower = JoinShape((w_a, w_b), chunk_rows=tree.chunk_rows, keep=(TS,))
    upper = JoinShape(
        (min(w_a, w_b), w_c), times=((("ts.A", w_a), ("ts.B", w_b)), ()), chunk_rows=tree.chunk_rows, keep=(TS,)
    )
    state: list[list[Segment]] = [[], [], [], []]
    newest: list[int | None] = [None] * 3
    counted: list[list[tuple[int, Row]]] = [[], [], []]
    found: Counter[tuple[int, ...]] = Counter()
    for batch in range(BATCHES):
        limits = tree.thresholds(newest)
        for port, threshold in enumerate(limits.purge):
            state[port] = [keep_after(segment, threshold) for segment in state[port]]
        arrived = []
        for i, rows in enumerate(tree.rows):
            late = limits.late[i]
            here = [(n, row) for n, row in enumerate(rows) if row.batch == batch]
            newest[i] = max([row.ts for _, row in here] + [t for t in [newest[i]] if t is not None], default=None)
            here = [(n, row) for n, row in here if late is None or row.ts >= late]
            counted[i] += here
            arrived.append(here)
        a, b, c = delta(arrived[0], "x"), delta(arrived[1], "x"), delta(arrived[2], "y")
        made = pairs(lower, state[:2], [a, b])
        in_order(made)
        for matches in join_deltas(upper, state[2:], [made, c]):
            both, last = (table.take(pa.array(rows)) for table, rows in zip(matches.tables, matches.rows, strict=True))
            found.update(zip(*(both.column(n).to_pylist() for n in "AB"), last.column("id").to_pylist(), strict=True))
        for port, segment in enumerate((a, b, made, c)):
            state[port].append(segment)
    return found, counted


def in_order(segment: Segment) -> None:
    """The timestamp-order property of paper 3: what is stored together is ordered by TSmax."""
    ts = segment.ts
    assert ts is not None
    assert np.all(ts == np.maximum(*(segment.rows.column(f"ts.{name}").to_numpy() for name in "AB")))
    same_key = segment.hashes[1:] == segment.hashes[:-1]
    assert np.all(ts[1:][same_key] >= ts[:-1][same_key])


def definition(tree: Tree, counted: list[list[tuple[int, Row]]]) -> Counter[tuple[int, ...]]:
    """SPEC section 0, combination by combination, over the rows that were on time."""
    found: Counter[tuple[int, ...]] = Counter()
    for n, a in counted[0]:
        for m, b in counted[1]:
            for k, c in counted[2]:
                newest = max(a.ts, b.ts, c.ts)
                inside = all(row.ts >= newest - w for row, w in zip((a, b, c), tree.windows, strict=True))
                if a.x == b.x and b.y == c.y and inside:
                    found[n, m, k] += 1
    return found


@examples(150)
@given(trees())
def test_a_tree_of_window_joins_answers_as_the_definition_does_whatever_is_purged(tree: Tree) -> None:
    found, counted = answer(tree)
    assert found == definition(tree, counted)


def test_joined_rows_expire_by_their_oldest_part() -> None:
    """A pair whose A is old and whose B is new: its newest time alone would let it meet C."""
    a, b, c = (Row(0, 0, 0, 0),), (Row(0, 0, 8, 0),), (Row(0, 0, 12, 1), Row(0, 0, 10, 2))
    tree = Tree((a, b, c), (10, 10, 10), (None,) * 3, 1_000)
    found, counted = answer(tree)
    assert found == definition(tree, counted) == Counter({(0, 0, 1): 1})
