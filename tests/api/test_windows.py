"""Whole runs through the public API, compared with DuckDB on the complete input."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.oracle.feed import Feed, on_time, run_to_end, written
from tests.oracle.referee import Stream, assert_same_rows, join

pytestmark = pytest.mark.spark

EVENTS = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64()), ("unused", pa.string())])


def events(rng: random.Random, rows: int, start: int, spread: int, keys: int = 4) -> dict[str, list]:
    """Random rows with event times around `start`, some of them with a null key."""
    return {
        "k": [None if rng.random() < 0.1 else rng.randrange(keys) for _ in range(rows)],
        "at": [start + rng.randrange(-spread, spread) for _ in range(rows)],
        "v": [rng.randrange(100) for _ in range(rows)],
        "unused": ["x"] * rows,
    }


def test_windows_of_their_own_lateness_and_purge(spark: SparkSession, tmp_path: Path) -> None:
    """Three streams with different windows; rows on time all count, late ones are counted out, old state goes away."""
    rng = random.Random(1)
    windows, lateness = {"A": 2000, "B": 500, "C": 0}, {"A": 300, "B": 100, "C": 1000}
    feeds = {name: Feed(tmp_path / name, EVENTS) for name in "ABC"}
    for batch in range(5):
        for feed in feeds.values():
            feed.add(**events(rng, 40, start=batch * 3000, spread=2500, keys=3))
    engine = ab.Engine(spark, checkpoint=tmp_path / "checkpoint", processors=2, groups=16)
    for name, feed in feeds.items():
        engine.register(name, feed.stream(spark), time="at", lateness=dt.timedelta(milliseconds=lateness[name]))
    query = engine.sql(
        "SELECT A.k, A.v AS av, B.v + C.v AS total, C.at FROM A [RANGE 2 SECONDS], B [RANGE 500 MILLISECONDS] "
        "JOIN C [NOW] ON C.k = B.k WHERE A.k = B.k AND A.v > 20 AND B.v <> C.v"
    )
    run = run_to_end(query, tmp_path / "out")

    # A row that cannot join anyway (null key, predicate) does not reach the engine and moves no watermark.
    reaching = {
        name: [batch.filter(batch.column("k").is_valid()) for batch in feed.batches] for name, feed in feeds.items()
    }
    reaching["A"] = [batch.filter(pa.array([v > 20 for v in batch.column("v").to_pylist()])) for batch in reaching["A"]]
    sorted_out = {name: on_time(batches, "at", lateness[name]) for name, batches in reaching.items()}
    streams = {name: Stream(kept, ["k"], "at", windows[name]) for name, (kept, _) in sorted_out.items()}
    expected = join(streams, ["A.k", "A.v AS av", "B.v + C.v AS total", "C.at"], where="A.v > 20 AND B.v <> C.v")
    assert len(expected) > 0
    assert_same_rows(written(tmp_path / "out"), expected)

    progress = [entry["anabranch"] for entry in run.recentProgress]
    late = {name: sum(entry["lateRows"][name] for entry in progress) for name in feeds}
    assert late == {name: len(rows) for name, (_, rows) in sorted_out.items()}
    assert all(count > 0 for count in late.values())
    active = [sum(processor["activeRows"] for processor in entry["processors"]) for entry in progress]
    assert len(active) == 5
    stored = sum(len(kept) for kept, _ in sorted_out.values())
    assert active[-1] < stored / 2, f"state grew to {active} of {stored} rows and was not purged"


def test_self_joins_unbounded_streams_and_mixed_widths(spark: SparkSession, tmp_path: Path) -> None:
    """Four inputs from three streams, one of them empty for ever in a second query; an empty batch in between."""
    rng = random.Random(2)
    narrow = pa.schema([("id", pa.int32()), ("name", pa.string())])
    wide = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    people, values = Feed(tmp_path / "people", narrow), Feed(tmp_path / "values", wide)
    silent = Feed(tmp_path / "silent", wide)
    for rows in (12, 0, 12):
        people.add(id=[rng.randrange(6) for _ in range(rows)], name=[rng.choice(["ann", "bob"]) for _ in range(rows)])
        values.add(k=[rng.randrange(6) for _ in range(rows)], v=[float(rng.randrange(5)) for _ in range(rows)])
    values.add(k=[1, 2, None, 10**12], v=[None, 1.5, 2.5, 3.5])

    def engine(checkpoint: str) -> ab.Engine:
        made = ab.Engine(spark, checkpoint=tmp_path / checkpoint, processors=3, groups=8)
        made.register("people", people.stream(spark))
        made.register("vals", values.stream(spark))
        made.register("silent", silent.stream(spark))
        return made

    query = engine("one").sql(
        "SELECT p.name, upper(q.name) AS other, a.v, b.v AS w FROM people p, people AS q, vals a, vals b "
        "WHERE p.id = q.id AND q.id = a.k AND a.k = b.k AND p.name < q.name AND a.v <= b.v AND a.v IS NOT NULL"
    )
    run_to_end(query, tmp_path / "out")
    streams = {
        "p": Stream(people.complete, ["id"]),
        "q": Stream(people.complete, ["id"]),
        "a": Stream(values.complete, ["k"]),
        "b": Stream(values.complete, ["k"]),
    }
    expected = join(streams, ["p.name", "upper(q.name)", "a.v", "b.v"], where="p.name < q.name AND a.v <= b.v")
    assert len(expected) > 0
    assert_same_rows(written(tmp_path / "out"), expected)

    run = run_to_end(
        engine("two").sql("SELECT a.v FROM vals a, silent s WHERE a.k = s.k AND 1 = 1"), tmp_path / "nothing"
    )
    assert run.exception() is None
    assert run.recentProgress[-1]["anabranch"]["totals"]["results"] == {"query": 0}


def test_event_time_of_every_type_means_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """TIMESTAMP, TIMESTAMP_NTZ and BIGINT milliseconds in one query, also before 1970; TIMESTAMP in microseconds."""
    moments = [-86_400_001_000, -1_000, 0, 999_000, 1_000_000, 3_600_000_000_000, 253_370_764_799_000_000]
    zoned = Feed(tmp_path / "zoned", pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))]))
    naive = Feed(tmp_path / "naive", pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))]))
    millis = Feed(tmp_path / "millis", pa.schema([("k", pa.int64()), ("t", pa.int64())]))
    near = [moment + shift for moment in moments for shift in (0, -1, 1)]
    zoned.add_table(
        pa.table({"k": [1] * len(near), "t": pa.array(near, pa.int64()).cast(zoned.schema.field("t").type)})
    )
    naive.add_table(
        pa.table({"k": [1] * len(near), "t": pa.array(near, pa.int64()).cast(naive.schema.field("t").type)})
    )
    millis.add(k=[1] * len(moments), t=[moment // 1000 for moment in moments])
    engine = ab.Engine(spark, checkpoint=tmp_path / "checkpoint", processors=1)
    engine.register("Z", zoned.stream(spark), time="T")
    engine.register("N", naive.stream(spark), time="t")
    engine.register("M", millis.stream(spark), time="t")
    run_to_end(
        engine.sql(
            "SELECT Z.t, N.t AS nt, M.t AS mt FROM Z [RANGE 1 SECOND], N [NOW], M [RANGE 1 MICROSECOND] "
            "WHERE Z.k = N.k AND N.k = M.k"
        ),
        tmp_path / "out",
    )
    expected = {
        (z, n, m)
        for z in near
        for n in near
        for m in moments
        if z >= max(z, n, m) - 1_000_000 and n >= max(z, n, m) and m >= max(z, n, m) - 1
    }
    answer = written(tmp_path / "out")
    found = [answer.column(name).cast(pa.int64()).to_pylist() for name in ("t", "nt")]
    found.append([ms * 1000 for ms in answer.column("mt").to_pylist()])
    assert sorted(zip(*found, strict=True)) == sorted(expected)


def test_an_untimed_stream_joins_a_windowed_one_without_limit(spark: SparkSession, tmp_path: Path) -> None:
    """Batch borders in the middle of everything; nothing is late: the untimed stream can always bring a partner."""
    facts = Feed(tmp_path / "facts", EVENTS)
    names = Feed(tmp_path / "names", pa.schema([("k", pa.int64()), ("name", pa.string())]))
    facts.add(k=[1, 1, 2], at=[10_000, 0, 5], v=[1, 2, 3], unused=[None] * 3)
    facts.add(k=[1, 2], at=[20_000, 0], v=[4, 5], unused=[None] * 2)
    names.add(k=[2], name=["two"])
    names.add(k=[], name=[])
    names.add(k=[1, None], name=["one", "none"])
    engine = ab.Engine(spark, checkpoint=tmp_path / "checkpoint", processors=2)
    engine.register("facts", facts.stream(spark), time="at", lateness="1 second")
    engine.register("names", names.stream(spark))
    run_to_end(
        engine.sql("SELECT f.v, n.name FROM facts [RANGE 1 SECOND] AS f, names AS n WHERE f.k = n.k"), tmp_path / "out"
    )
    streams = {"f": Stream(facts.complete, ["k"]), "n": Stream(names.complete, ["k"])}
    assert_same_rows(written(tmp_path / "out"), join(streams, ["f.v", "n.name"]))
