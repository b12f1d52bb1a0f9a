"""Whatever a user does with an answer does not reach the engine: state, counts and later answers stay exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import InconsistentStepError
from anabranch.runtime.exchange import processors
from anabranch.runtime.spark.internals import exchanged_rows
from anabranch.state.groups import GroupSet
from tests.oracle.feed import Feed
from tests.oracle.referee import Stream, assert_same_rows, join, query
from tests.oracle.reshaping import RESHAPED
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = {"A": Kind(SCHEMA), "B": Kind(SCHEMA)}
# One that processors finish themselves, and one that Spark has to.
QUERIES = {
    "plain": "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k",
    "finished by Spark": "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k AND length(concat(A.v, B.v)) > 0",
}


def batch(number: int) -> pa.Table:
    return pa.table({"k": [n % 11 for n in range(12)], "v": [12 * number + n for n in range(12)]}, schema=SCHEMA)


def test_an_answer_may_be_reshaped_in_any_way(spark: SparkSession, tmp_path: Path) -> None:
    plain, finished = QUERIES.values()
    answers: dict[str, list[pa.Table]] = {"plain": [], "finished by Spark": []}

    def reshaping(name: str) -> Callable[[DataFrame, int], None]:
        ways = iter(RESHAPED.values())

        def sink(results: DataFrame, batch_id: int) -> None:
            next(ways)(results)
            answers[name].append(results.toArrow())

        return sink

    fed = [batch(number) for number in range(len(RESHAPED))]
    other = {"finished by Spark": finished}
    sinks = {name: reshaping(name) for name in other}
    rig = Steps(spark, tmp_path, plain, KINDS, processors=3, sink=reshaping("plain"), others=other, sinks=sinks)
    with rig as steps:
        for rows in fed:
            steps.feed({"A": rows, "B": rows})
        last = steps.results[-1]
        steps.check_owners()

    stream = Stream(pa.concat_tables(fed), ["k"])
    expected = join({"A": stream, "B": stream}, ["A.k", "A.v", "B.v AS w"])
    for answer in answers.values():
        assert_same_rows(pa.concat_tables(answer), expected)
    assert last.totals["received"] == [12 * len(fed)] * 2
    assert sum(report.active_rows for report in last.reports) == 24 * len(fed)


def test_spark_may_coalesce_by_itself_as_its_jdbc_writer_does(spark: SparkSession, tmp_path: Path) -> None:
    feeds = {name: Feed(tmp_path / name, SCHEMA) for name in "AB"}
    for number in range(2):
        for feed in feeds.values():
            feed.add_table(batch(number))
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=3, groups=16)
    for name, feed in feeds.items():
        engine.register(name, feed.stream(spark))
    jdbc = {
        "url": f"jdbc:derby:{tmp_path / 'database'};create=true",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
        "dbtable": "answers",
    }
    writer = engine.sql(QUERIES["plain"]).writeStream.format("jdbc").options(**jdbc, numPartitions=1)
    run = writer.trigger(availableNow=True).start()
    run.awaitTermination()

    streams = {name: Stream(feed.complete, ["k"]) for name, feed in feeds.items()}
    written = spark.read.format("jdbc").options(**jdbc).load().toArrow()
    assert_same_rows(written, join(streams, ["A.k", "A.v", "B.v AS w"]))
    assert run.lastProgress["anabranch"]["receivedRows"] == {"A": 12, "B": 12}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS one FROM A, B WHERE A.k = B.k",
        "SELECT 1 AS one, 'x' AS s FROM A, B WHERE A.k = B.k AND length(concat(A.v, '')) > 0",
        "SELECT 1 AS one FROM A, B WHERE A.k = B.k UNION ALL SELECT 2 FROM A, B WHERE A.k = B.k",
        "SELECT 1 AS one FROM (SELECT A.k AS k FROM A, B WHERE A.k = B.k) X, B AS C WHERE X.k = C.k",
        "SELECT X.one FROM (SELECT 1 AS one FROM A, B WHERE A.k = B.k) X, B AS C WHERE X.one = C.k",
        "SELECT 1 AS one FROM A [RANGE 1 SECOND] GROUP BY k",
    ],
)
def test_an_answer_that_reads_no_column_has_all_its_rows(spark: SparkSession, tmp_path: Path, text: str) -> None:
    kinds = {"A": Kind(SCHEMA, time="v", lateness=0), "B": Kind(SCHEMA)}
    rows = batch(0)
    with Steps(spark, tmp_path / "checkpoint", text, kinds, processors=2) as steps:
        steps.feed({"A": rows, "B": rows})
        steps.end()
    windows = text.replace(" [RANGE 1 SECOND]", "").replace("GROUP BY k", "")
    assert len(steps.answer) == len(query(windows, {"A": rows, "B": rows})) >= 12


def test_what_a_function_sets_in_the_session_of_its_results_does_not_reach_the_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    answers: list[pa.Table] = []

    def sink(results: DataFrame, batch_id: int) -> None:
        results.sparkSession.conf.set("spark.sql.adaptive.enabled", "true")
        results.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        results.createOrReplaceTempView("mine")
        answers.append(results.sparkSession.sql("SELECT * FROM mine").toArrow())

    fed = [batch(number) for number in range(3)]
    with Steps(spark, tmp_path / "checkpoint", QUERIES["plain"], KINDS, processors=3, sink=sink) as steps:
        for rows in fed:
            steps.feed({"A": rows, "B": rows})
    stream = Stream(pa.concat_tables(fed), ["k"])
    assert_same_rows(pa.concat_tables(answers), join({"A": stream, "B": stream}, ["A.k", "A.v", "B.v AS w"]))


def test_a_plan_without_exchanges_is_refused_if_there_are_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Steps(spark, tmp_path / "checkpoint", QUERIES["plain"], KINDS) as steps:
        monkeypatch.setattr(processors, "exchanged_rows", lambda last, rounds: None)
        with pytest.raises(InconsistentStepError, match="not to be found in Spark's plan"):
            steps.feed({"A": batch(0), "B": batch(0)})
        assert steps.taken.last_step() is None


def test_results_that_are_read_after_their_batch_say_so(spark: SparkSession, tmp_path: Path) -> None:
    kept: list[DataFrame] = []
    with Steps(spark, tmp_path / "checkpoint", QUERIES["plain"], KINDS, sink=lambda d, _: kept.append(d)) as steps:
        steps.feed({"A": batch(0), "B": batch(0)})
    with pytest.raises(Exception, match="the results of batch 0 are gone: they can be read while the function"):
        kept[0].collect()


def test_a_processor_refuses_rows_of_groups_that_are_not_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Steps(spark, tmp_path / "checkpoint", QUERIES["plain"], KINDS, processors=3) as steps:
        steps.feed({"A": batch(0), "B": batch(0)})
        nobody = GroupSet(16, 0)
        monkeypatch.setattr(processors.Processors, "owned", lambda self, p: (nobody,))
        with pytest.raises(Exception, match=r"processor \d got rows of partition group \d+, which is not its own"):
            steps.feed({"A": batch(1), "B": batch(1)})
        assert isinstance(steps.runner.failure, InconsistentStepError)
        assert steps.taken.last_step().batch_id == 0


def test_a_step_is_not_committed_if_fewer_rows_arrived_than_were_sent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that vanish between an exchange and its processors, and a metric that has counted a stage twice."""
    with Steps(spark, tmp_path / "checkpoint", QUERIES["plain"], KINDS, processors=3) as steps:
        monkeypatch.setattr(
            processors, "exchanged_rows", lambda last, rounds: [2 * rows for rows in exchanged_rows(last, rounds)]
        )
        steps.feed({"A": batch(0), "B": batch(0)})
        assert steps.taken.last_step().batch_id == 0

        lossy = processors.run_processor
        monkeypatch.setattr(
            processors, "run_processor", lambda plan, task, n, batches: lossy(plan, task, n, list(batches)[1:])
        )
        with pytest.raises(InconsistentStepError, match="0 rows have arrived .* but 48 were sent"):
            steps.feed({"A": batch(1), "B": batch(1)})
        assert steps.taken.last_step().batch_id == 0
