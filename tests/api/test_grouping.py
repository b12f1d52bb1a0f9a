"""GROUP BY and DISTINCT as a user meets them: runs that end, are resumed, go on, and are explained."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import QueryError, ResumeMismatchError, UnsupportedError
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("client", pa.string()), ("at", pa.int64()), ("bytes", pa.int32()), ("cost", pa.decimal128(9, 2))])
TEXT = (
    "SELECT client, count(*) AS n, sum(bytes) AS total, avg(bytes) AS mean, min(cost) AS least, sum(cost) AS paid, "
    "stddev(bytes) AS spread FROM R [RANGE 2 SECONDS] GROUP BY client"
)
OVER = 'OVER (PARTITION BY client ORDER BY "at" RANGE BETWEEN 2000 PRECEDING AND CURRENT ROW)'


@pytest.fixture
def requests(tmp_path: Path) -> Feed:
    made = Feed(tmp_path / "R", SCHEMA)
    made.add(client=["a", None, "b"], at=[0, 500, 900], bytes=[1, 2, None], cost=[1, 2, 3])
    made.add(client=["a", "a", "b"], at=[1000, 2500, 2900], bytes=[10, 20, 30], cost=[None, 5, 6])
    return made


def engine(spark: SparkSession, feed: Feed, **settings: object) -> ab.Engine:
    made = ab.Engine(spark, feed.directory.parent / "checkpoint", processors=2, **settings)
    made.register("R", feed.stream(spark), time="at", lateness="1 second")
    return made


def expected(feed: Feed) -> pa.Table:
    calls = (
        f"count(*) {OVER}, sum(bytes) {OVER}::BIGINT, avg(bytes) {OVER}, min(cost) {OVER}, "
        f"sum(cost) {OVER}::DECIMAL(19, 2), round(stddev_samp(bytes) {OVER}, 9)"
    )
    return query(f"SELECT client, {calls} FROM r", {"r": feed.complete})


def rounded(found: pa.Table) -> pa.Table:
    return query("SELECT * REPLACE (round(spread, 9) AS spread) FROM f", {"f": found})


def test_every_request_is_answered_also_after_the_input_ended_and_went_on(
    spark: SparkSession, requests: Feed, tmp_path: Path
) -> None:
    run = run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    assert_same_rows(rounded(written(tmp_path / "out")), expected(requests))
    assert [event.kind for event in run.events] == ["end"]
    assert str(run.events[0]).endswith("rows of the answer were waiting for it")
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["results"] == {"query": 6}
    requests.add(client=["a", "b"], at=[3000, 4000], bytes=[7, 8], cost=[0, 0])
    run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    assert_same_rows(rounded(written(tmp_path / "out")), expected(requests))
    run = run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    assert_same_rows(rounded(written(tmp_path / "out")), expected(requests))
    assert [event.kind for event in run.events_since()] == ["resume"]  # there was nothing new to answer


def test_rows_behind_what_was_answered_at_an_end_are_late(spark: SparkSession, requests: Feed, tmp_path: Path) -> None:
    run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    answered = expected(requests)
    requests.add(client=["a", "a"], at=[2900, 2899], bytes=[7, 8], cost=[0, 0])
    run = run_to_end(engine(spark, requests, late_rows=tmp_path / "late").sql(TEXT), tmp_path / "out")
    assert_same_rows(rounded(written(tmp_path / "out")), answered)
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["late"] == {"R": 2}
    lines = "".join(path.read_text() for path in (tmp_path / "late").iterdir())
    assert '"row": {"bytes": 7, "client": "a", "cost": "0.00"}' in lines


def test_batches_come_to_a_function_under_ids_of_their_own(spark: SparkSession, requests: Feed, tmp_path: Path) -> None:
    """The end of the input counts as a batch, so later ones are moved up by one."""
    seen: Counter[int] = Counter()

    def sink(results: DataFrame, batch_id: int) -> None:
        seen[batch_id] += results.count()

    for _ in range(2):
        writer = engine(spark, requests).sql(TEXT).writeStream.foreachBatch(sink)
        writer.trigger(availableNow=True).start().awaitTermination()
        requests.add(client=["a"], at=[4000], bytes=[7], cost=[0])
    assert seen == {0: 0, 1: 0, 2: 6, 3: 0, 4: 1}


def test_a_run_that_goes_on_answers_what_its_watermark_has_passed(
    spark: SparkSession, requests: Feed, tmp_path: Path
) -> None:
    query_ = engine(spark, requests).sql(TEXT)
    with ExitStack() as stopped:
        run = query_.writeStream.trigger(processingTime="100 milliseconds").start(tmp_path / "out")
        stopped.callback(run.stop)
        run.processAllAvailable()
        requests.add(client=["c"], at=[9000], bytes=[1], cost=[1])
        run.processAllAvailable()
        assert len(written(tmp_path / "out")) == 4  # up to 2900 - 1000
        run.explain()
    assert "end" not in [event.kind for event in run.events]
    run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    assert_same_rows(rounded(written(tmp_path / "out")), expected(requests))


def test_the_plan_says_what_is_grouped(spark: SparkSession, requests: Feed) -> None:
    plan = engine(spark, requests).sql(f"{TEXT} HAVING count(*) > 1", emit="batch").plan
    assert "Filter [`agg.0` > 1]" in plan
    assert "Aggregate [COUNT(*), SUM(`bytes`), AVG(`bytes`)" in plan
    assert "by `client` (string), answered once per batch, round 1" in plan
    assert "Stream R, [RANGE 2 s], time at (lateness 1 s), purged behind the window" in plan
    distinct = engine(spark, requests).sql("SELECT DISTINCT client FROM R [NOW]").plan
    assert "Distinct [`client` (string)], round 1" in distinct
    last = engine(spark, requests).sql("SELECT max(at) AS t FROM R [PARTITION BY client ROWS 3] GROUP BY client").plan
    assert "Aggregate [MAX(`at`)] by `client` (string) over the last 3 rows of each" in last


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("SELECT sum(client) AS x FROM R [NOW]", QueryError, r"SUM\(`client`\) is of string, not of numbers; CAST it"),
        ("SELECT max(array(at)) AS x FROM R [NOW]", UnsupportedError, "MAX.* is of array<bigint>"),
        ("SELECT array(at) AS x, count(*) AS n FROM R [NOW] GROUP BY 1", UnsupportedError, "GROUP BY array.*array<big"),
        ("SELECT DISTINCT struct(at) AS x FROM R [NOW]", UnsupportedError, "DISTINCT of struct"),
        ("SELECT count(*) AS n FROM R [NOW] GROUP BY client HAVING count(*)", QueryError, "not boolean"),
        ("SELECT sum(rand()) AS n FROM R [NOW]", UnsupportedError, "the function rand"),
    ],
)
def test_what_spark_knows_better_is_refused(
    spark: SparkSession, requests: Feed, text: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        engine(spark, requests).sql(text)


def test_an_argument_that_fails_puts_its_row_aside(spark: SparkSession, requests: Feed, tmp_path: Path) -> None:
    text = "SELECT sum(100 / (bytes - 10)) AS x FROM R [RANGE 1 MINUTE]"
    run = run_to_end(engine(spark, requests, quarantine=tmp_path / "aside").sql(text), tmp_path / "out")
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["rejected"] == {"R": 1}
    assert len(written(tmp_path / "out")) == 5
    lines = "".join(path.read_text() for path in (tmp_path / "aside").iterdir())
    assert "the argument 100 / (`bytes` - 10) cannot be evaluated" in lines


def test_another_grouping_is_refused_on_resume(spark: SparkSession, requests: Feed, tmp_path: Path) -> None:
    run_to_end(engine(spark, requests).sql(TEXT), tmp_path / "out")
    with pytest.raises(ResumeMismatchError, match="grouping, emit was 'tuple' and is now 'batch'"):
        run_to_end(engine(spark, requests).sql(TEXT, emit="batch"), tmp_path / "out")
