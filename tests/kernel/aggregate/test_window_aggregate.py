"""Windowed GROUP BY and DISTINCT, batch by batch, against DuckDB on the complete input."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.aggregate.window_aggregate import Aggregate, WindowAggregate, _ranks
from anabranch.kernel.delta import keep_after, sort_rows
from anabranch.kernel.operator import EXPIRY, Settled, answers_later
from anabranch.plan.watermark import PortTime, SourceTime, thresholds
from anabranch.state.groups import GroupSet
from anabranch.state.runs.merge import merge_segments
from anabranch.state.runs.run import HASH, TS, Segment
from tests.oracle import referee
from tests.oracle.profiles import examples
from tests.state.segments import segment

AGGREGATES = (Aggregate("count", None), Aggregate("sum", "arg.0"), Aggregate("min", "arg.0"), Aggregate("max", "arg.0"))
RESULTS = tuple((name, n) for n, name in enumerate(("g", "rows", "total", "least", "most")))


@dataclass(frozen=True)
class Case:
    """Rows in batches. `shared` groups have one hash. Runs of the state are merged `together`."""

    batches: tuple[pa.Table, ...]
    lateness: int
    shared: int
    together: int

    @property
    def accepted(self) -> pa.Table:
        """The rows that are not late."""
        newest: int | None = None
        kept = []
        for batch in self.batches:
            ts = batch.column("ts").to_numpy()
            late = -(10**9) if newest is None else newest - self.lateness
            kept.append(batch.filter(pa.array(ts >= late)))
            newest = max([*ts.tolist(), *([] if newest is None else [newest])], default=None)
        return pa.concat_tables(kept)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    row = st.fixed_dictionaries(
        {
            "g": st.none() | st.integers(0, 5),
            "ts": st.integers(0, 30),
            "v": st.none() | st.integers(-5, 5),
            "alive": st.integers(0, 8),
        }
    )
    schema = pa.schema([(name, pa.int64()) for name in ("g", "ts", "v", "alive")])
    batches = draw(st.lists(st.lists(row, max_size=12), min_size=1, max_size=5))
    passes = draw(st.sampled_from([0, 20, 31]))  # from batch to batch: not at all, with overlaps, or altogether
    timed = [[row | {"ts": row["ts"] + n * passes} for row in rows] for n, rows in enumerate(batches)]
    tables = tuple(pa.Table.from_pylist(rows, schema) for rows in timed)
    return Case(tables, draw(st.integers(0, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 4)))


def segment_of(rows: pa.Table, shared: int, expires: bool) -> Segment:
    hashes = [42 if g is None else 1000 + g // shared for g in rows.column("g").to_pylist()]
    columns = {
        HASH: pa.array(hashes, pa.uint64()),
        TS: rows.column("ts").combine_chunks(),
        "key.0": rows.column("g").combine_chunks(),
        "arg.0": rows.column("v").combine_chunks(),
    }
    if expires:
        columns[EXPIRY] = pa.array(rows.column("ts").to_numpy() + rows.column("alive").to_numpy())
    return sort_rows(pa.record_batch(columns))


def answers(
    operator: WindowAggregate, case: Case, window: int | None, *, expires: bool = False
) -> tuple[list[pa.Table], pa.Table]:
    """What each batch gives, and all of it, the end of the input included."""
    sources, ports = [SourceTime(0, case.lateness, grouped_by=0)], [PortTime((0,), (), window, grouping=0)]
    segments: list[Segment] = []
    newest: int | None = None
    settled: int | None = None
    given_out = []

    def ask(until: int | None) -> None:
        chunks = [chunk for chunk, _ in operator.counted([segments], [], Settled(settled, until), 1)]
        given_out.append(pa.Table.from_batches(chunks) if chunks else None)

    for batch in case.batches:
        limits = thresholds(sources, ports, [newest], [settled])
        (until,) = limits.settled
        ts = batch.column("ts").to_numpy()
        on_time = ts >= (-(10**9) if limits.late[0] is None else limits.late[0])
        segments = [keep_after(segment, limits.purge[0]) for segment in segments]
        segments = [segment for segment in segments if len(segment)]
        ask(until)
        arriving = batch.filter(pa.array(on_time))
        if len(arriving):
            segments.append(segment_of(arriving, case.shared, expires))
        if len(segments) >= case.together > 1:
            merged = merge_segments(segments, limits.purge[0])
            now = Settled(settled, until)
            segments = [] if merged is None else [operator.keep(0, merged, now)]
        settled = until
        newest = max([*ts.tolist(), *([] if newest is None else [newest])], default=None)
    ask(None if newest is None else newest + 1)
    found = [table for table in given_out if table is not None]
    names = [name for name, _ in operator.results]
    empty = pa.table({name: pa.array([], pa.int64()) for name in names})
    return [table if table is not None else empty for table in given_out], pa.concat_tables([empty, *found])


def aggregates(over: str) -> str:
    return f"count(*) {over} AS rows, sum(v) {over} AS total, min(v) {over} AS least, max(v) {over} AS most"


def grouped(**changes: object) -> WindowAggregate:
    return WindowAggregate(
        keys=("key.0",), aggregates=AGGREGATES, results=RESULTS, gather_rows=7, chunk_rows=3, **changes
    )  # type: ignore[arg-type]


@examples(100)
@given(cases(), st.integers(0, 10))
def test_a_window_of_time_ends_at_every_tuple(case: Case, width: int) -> None:
    _, found = answers(grouped(width=width), case, width)
    over = f"OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN {width} PRECEDING AND CURRENT ROW)"
    text = f"SELECT g, {aggregates(over)} FROM t"
    referee.assert_same_rows(found, referee.query(text, {"t": case.accepted}))


@examples(100)
@given(cases(), st.integers(1, 4))
def test_a_window_of_rows_has_the_last_ones(case: Case, rows: int) -> None:
    _, found = answers(grouped(rows=rows, ties=("arg.0",)), case, None)
    over = f"OVER (PARTITION BY g ORDER BY ts, v NULLS FIRST ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW)"
    text = f"SELECT g, {aggregates(over)} FROM t"
    referee.assert_same_rows(found, referee.query(text, {"t": case.accepted}))


@examples(100)
@given(cases())
def test_joined_rows_are_in_the_window_until_each_expires(case: Case) -> None:
    _, found = answers(grouped(width=8), case, 8, expires=True)
    text = """
        SELECT r.g, count(*), sum(s.v), min(s.v), max(s.v)
        FROM (SELECT *, row_number() OVER () AS i FROM t) r JOIN t s
          ON r.g IS NOT DISTINCT FROM s.g AND s.ts <= r.ts AND r.ts <= s.ts + s.alive
        GROUP BY r.i, r.g
    """
    referee.assert_same_rows(found, referee.query(text, {"t": case.accepted}))


@examples(100)
@given(cases(), st.integers(0, 10))
def test_distinct_gives_a_value_that_is_not_in_its_window(case: Case, width: int) -> None:
    operator = WindowAggregate(
        keys=("key.0",), aggregates=(), results=(("g", 0),), width=width, distinct=True, gather_rows=7
    )
    _, found = answers(operator, case, width)
    before = "lag(ts) OVER (PARTITION BY g ORDER BY ts)"
    text = f"SELECT g FROM (SELECT g, ts, {before} AS before FROM t) WHERE before IS NULL OR ts - before > {width}"
    referee.assert_same_rows(found, referee.query(text, {"t": case.accepted}))


@examples(100)
@given(cases(), st.integers(0, 10))
def test_once_per_batch_is_the_last_of_what_each_tuple_would_get(case: Case, width: int) -> None:
    each, _ = answers(grouped(width=width), case, width)
    once, _ = answers(grouped(width=width, last_only=True), case, width)
    for all_rows, last in zip(each, once, strict=True):
        assert sorted(map(str, last.column("g").to_pylist())) == sorted(map(str, set(all_rows.column("g").to_pylist())))
        missing, surplus = referee.difference(all_rows, last)
        assert len(surplus) == len(all_rows) - len(last)
        assert len(missing) == 0


def test_rows_that_cannot_be_in_a_window_any_more_are_dropped_in_merges() -> None:
    rows = pa.table({"g": pa.array([1] * 6 + [2]), "ts": [*range(6), 0], "v": [0] * 7, "alive": [0] * 7})
    operator = grouped(rows=2, ties=("arg.0",))
    kept = operator.keep(0, segment_of(rows, 1, expires=False), Settled(None, 4))
    assert sorted(zip(kept.rows.column("key.0").to_pylist(), kept.ts.tolist(), strict=True)) == [
        (1, 2),
        (1, 3),
        (1, 4),
        (1, 5),
        (2, 0),
    ]
    assert len(operator.keep(0, segment_of(rows, 3, expires=False), Settled(None, 4))) == 7
    more = pa.concat_tables([rows, pa.table({"g": [5] * 9, "ts": range(9), "v": [0] * 9, "alive": [0] * 9})])
    kept = operator.keep(0, segment_of(more, 3, expires=False), Settled(None, 9))
    assert kept.rows.column("key.0").to_pylist().count(5) == 2  # another hash: only those that share one stay
    assert np.array_equal(grouped(width=1).keep(0, kept, Settled(None, 4)).hashes, kept.hashes)


COUNT = 8
times = st.none() | st.integers(0, 30)
spread_rows = st.lists(
    st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 30), st.integers(-5, 5)), min_size=1, max_size=12),
    min_size=1,
    max_size=4,
)


def spread_out(runs: list[list[tuple[int, int, int]]]) -> list[Segment]:
    """Runs of rows with a key in every partition group."""
    return [
        segment(
            [key << 61 for key, _, _ in run],
            [ts for _, ts, _ in run],
            **{"key.0": [key for key, _, _ in run], "arg.0": [v for _, _, v in run]},
        )
        for run in runs
    ]


def given_by(operator: WindowAggregate, segments: list[Segment], settled: Settled) -> list[str]:
    found = [results for results, _ in operator.counted([segments], [], settled, COUNT)]
    return sorted(str(row) for results in found for row in results.to_pylist())


windows = st.sampled_from([{"width": 0}, {"width": 7}, {"rows": 1}, {"rows": 3}])


@examples(100)
@given(spread_rows, windows, times, times, st.lists(st.tuples(st.sets(st.integers(0, 7)), times, times), max_size=3))
def test_groups_that_have_times_of_their_own_are_answered_as_if_they_were_alone(
    runs: list[list[tuple[int, int, int]]],
    window: dict[str, int],
    since: int | None,
    until: int | None,
    others: list[tuple[set[int], int | None, int | None]],
) -> None:
    operator, segments = grouped(ties=("arg.0",), **window), spread_out(runs)
    own = dict.fromkeys(range(COUNT), Settled(since, until))
    own |= {group: Settled(*others[n][1:]) for n in range(len(others)) for group in others[n][0]}
    told = tuple((GroupSet.of(COUNT, [group]), settled) for group, settled in own.items() if settled != own[0])
    together = given_by(operator, segments, replace(own[0], others=told))
    alone = [
        answer
        for group, settled in own.items()
        for answer in given_by(operator, [s.of_groups(GroupSet.of(COUNT, [group])) for s in segments], settled)
    ]
    assert together == sorted(alone)


@examples(50)
@given(spread_rows, st.integers(1, 4), times, st.sets(st.integers(0, 7)), times)
def test_of_a_group_that_is_overdue_all_rows_stay_that_its_answers_need(
    runs: list[list[tuple[int, int, int]]], rows: int, until: int | None, lagging: set[int], reached: int | None
) -> None:
    operator = grouped(ties=("arg.0",), rows=rows)
    merged = merge_segments(spread_out(runs), None)
    assert merged is not None
    slow = GroupSet.of(COUNT, lagging)
    kept = operator.keep(0, merged, Settled(None, until, ((slow, Settled(None, reached)),)))
    later = Settled(until, 40, ((slow, Settled(reached, 40)),))
    assert given_by(operator, [kept], later) == given_by(operator, [merged], later)


def test_only_an_operator_that_counts_its_answers_is_known_to_answer_later() -> None:
    class OfAUser:
        waits = True

        def process(self, old: object, deltas: object, settled: Settled) -> list[pa.RecordBatch]:
            return []

        def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
            return rows

    assert answers_later(grouped(width=1))
    assert not answers_later(OfAUser())


def test_ties_put_nulls_first_and_nan_last() -> None:
    assert _ranks(pa.array([1.0, float("nan"), None, 2.0, None])).tolist() == [1, 3, 0, 2, 0]


def test_what_spilled_groups_owe_comes_in_the_order_of_time_group_by_group() -> None:
    rows = [(key, ts) for ts in range(40) for key in (1, 2)]
    lots = [[row for n, row in enumerate(rows) if n % 3 == lot] for lot in range(3)]
    generations = [
        [[segment([key << 60 for key, _ in lot], [ts for _, ts in lot], **{"key.0": [key for key, _ in lot]})]]
        for lot in lots
    ]
    operator = WindowAggregate(
        ("key.0",), (Aggregate("count", None),), (("k", 0), ("n", 1)), width=5, timed=True, chunk_rows=7
    )
    owed = [results for results, _ in operator.owed(generations, Settled(10, 35), 16)]
    answers = [row for results in owed for row in results.to_pylist()]
    assert len(answers) == 2 * 25
    for key in (1, 2):
        assert [row["ts"] for row in answers if row["k"] == key] == list(range(10, 35))
        assert {row["n"] for row in answers if row["k"] == key} == {6}
