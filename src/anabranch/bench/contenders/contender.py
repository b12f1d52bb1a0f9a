"""The child process of a benchmark: one engine, one input, one outcome.

`python -m anabranch.bench.contenders.contender` reads a `Job` from the first line of its standard input and prints an
`Outcome` as its last line. All contenders share the session's settings, the file source, the columns, the
sink and the trigger; they differ in the engine, and in what `ENGINE_SETTINGS` says.

The clock starts just before start() of the query, so JVM start and session creation are not counted, and
first-batch start-up is. Results are counted after the clock has stopped: with the parquet sink by reading
the written files with DuckDB; with the noop sink from `sink.numOutputRows` of the progress. That number
costs nobody anything extra, but it has two origins: Spark's writer counts the rows it hands to the sink,
Anabranch adds up what its processors reported. So a noop run shows that Anabranch found the right number of
results, and only a parquet run that it delivered them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, SparkSession

from anabranch.api.session import local_session
from anabranch.bench.contenders.job import (
    CHAIN,
    GROUPBY,
    SHARED_CONTENDERS,
    SPARK_ROCKSDB,
    TRANSFORM,
    TWO,
    TWO_APART,
    WINDOWS,
    Batch,
    Job,
    Outcome,
)
from anabranch.bench.contenders.queries import (
    built_in_windows,
    chain_of_joins,
    chain_query,
    continuous_query,
    groupby_query,
    other_query,
    stream_stream_join,
)
from anabranch.errors import BenchmarkError
from anabranch.runtime.spark.logs import FILE_MANAGER, PLAIN

STATE_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
# transformWithState works with no other store.
ENGINE_SETTINGS: dict[str, dict[str, str]] = {SPARK_ROCKSDB: ROCKSDB, TRANSFORM: ROCKSDB}
# Spark's default manager starts several processes per file on local disks; this one only runs chmod.
TUNED_SETTINGS = {FILE_MANAGER: PLAIN}


def main() -> None:
    """Read the job, run it, print the outcome."""
    job = Job.from_json(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    print(execute(job).to_json(), flush=True)


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(3)


def execute(job: Job) -> Outcome:
    """Run the job in a new Spark session of this process."""
    spark = _session(job)
    streams = {name: _stream(spark, Path(job.input) / name, job.query) for name in job.streams}
    output, other = Path(job.scratch) / "output", Path(job.scratch) / "other"
    ours = job.contender in SHARED_CONTENDERS
    start = _anabranch(spark, streams, job, (output, other)) if ours else _spark(streams, job, output)
    started = time.perf_counter()
    query = start()
    query.awaitTermination()
    seconds = time.perf_counter() - started
    batches = tuple(_batch(progress) for progress in query.recentProgress)
    spark.stop()
    if job.sink == "parquet":
        results, checksum = _read_back(output)
        if job.contender in (TWO, TWO_APART) and _read_back(other)[0] != results:
            raise BenchmarkError(f"{job.contender}: two queries over one join have different numbers of results")
        return Outcome(seconds, batches, results, checksum)
    if any(batch.results is None for batch in batches):
        raise BenchmarkError(f"{job.contender} does not report sink.numOutputRows for the {job.sink} sink")
    results = sum(batch.results or 0 for batch in batches)
    # Rows that Anabranch answers when the input ends belong to no batch.
    answers = {int(rows) for rows in query.progress.totals.results.values()} if ours else set()
    if len(answers) > 1:
        raise BenchmarkError(f"{job.contender}: two queries over one join have different numbers of results")
    return Outcome(seconds, batches, answers.pop() if answers else results, state_bytes=_state_bytes(query, ours))


def _state_bytes(query: Any, ours: bool) -> int:
    """The largest size of Anabranch's state after any batch."""
    if not ours:
        return 0
    after_batches = [batch.step.processors for batch in query.batches_since()]
    return max((sum(p.active_bytes + p.spilled_bytes for p in processors) for processors in after_batches), default=0)


def _session(job: Job) -> SparkSession:
    return local_session(
        job.cores,
        name=f"bench {job.contender}",
        memory=job.driver_memory,
        conf={
            "spark.sql.shuffle.partitions": str(job.processors),
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
            "spark.sql.warehouse.dir": str(Path(job.scratch) / "warehouse"),
            "spark.local.dir": str(Path(job.scratch) / "local"),
            **ENGINE_SETTINGS.get(job.contender, {}),
            **(TUNED_SETTINGS if job.tuned else {}),
        },
    )


def _stream(spark: SparkSession, folder: Path, query: str) -> DataFrame:
    second = "j bigint, " if query == CHAIN else ""
    reader = spark.readStream.schema(f"k bigint, {second}ts bigint, v bigint").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def _anabranch(
    spark: SparkSession, streams: dict[str, DataFrame], job: Job, outputs: tuple[Path, Path]
) -> Callable[[], Any]:
    # Imported here so that the peers can be measured without the engine. Through importlib, because the
    # benchmark uses only the public face and must not depend on how it is typed.
    from importlib import import_module

    options: dict[str, Any] = {} if job.groups is None else {"groups": job.groups}
    if job.memory is not None:
        options["memory"] = job.memory
    lateness = {} if job.lateness is None else {"lateness": f"{job.lateness} seconds"}
    checkpoint = str(Path(job.scratch) / "checkpoint")
    engine = import_module("anabranch").Engine(spark, checkpoint=checkpoint, processors=job.processors, **options)
    for name, frame in streams.items():
        engine.register(name, frame, time="ts", **lateness)
    texts = [_text(job)]
    if job.contender in (TWO, TWO_APART):
        texts.append(other_query(job.streams, apart=job.contender == TWO_APART))
    writers = []
    for text, output in zip(texts, outputs, strict=False):
        writer = engine.sql(text).writeStream.format(job.sink).trigger(availableNow=True)
        writers.append(writer.option("path", str(output)) if job.sink == "parquet" else writer)
    return lambda: engine.start(writers)


def _text(job: Job) -> str:
    if job.query == CHAIN:
        return chain_query()
    return groupby_query(job.window or 1) if job.query == GROUPBY else continuous_query(job.streams, job.window)


def _spark(streams: dict[str, DataFrame], job: Job, output: Path) -> Callable[[], Any]:
    checkpoint = str(Path(job.scratch) / "checkpoint")
    writer = _answer(streams, job).writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    if job.sink == "parquet":
        writer = writer.option("path", str(output))
    return writer.format(job.sink).trigger(availableNow=True).start


def _answer(streams: dict[str, DataFrame], job: Job) -> DataFrame:
    if job.contender == TRANSFORM:
        # Imported here: it needs what only this contender does.
        from anabranch.bench.contenders.sliding import sliding_windows

        return sliding_windows(streams["A"], job.window or 1)
    if job.contender == WINDOWS:
        return built_in_windows(streams["A"], job.window or 1)
    if job.query == CHAIN:
        return chain_of_joins(streams)
    return stream_stream_join(streams, job.window, job.lateness or 0)


def _batch(progress: Any) -> Batch:
    written = int(progress["sink"]["numOutputRows"]) if "numOutputRows" in progress["sink"] else -1
    return Batch(
        rows=int(progress["numInputRows"]),
        milliseconds=int(progress["durationMs"]["triggerExecution"]),
        results=None if written < 0 else written,
    )


def _read_back(output: Path) -> tuple[int, str]:
    """Rows of the output and a sum of their hashes, which depends on neither order nor files."""
    files = str(output / "**" / "*.parquet")
    if not any(output.rglob("*.parquet")):
        return 0, "0"
    with duckdb.connect() as connection:
        columns = connection.read_parquet(files, hive_partitioning=False).columns
        hashed = ", ".join(f'"{column}"' for column in columns)
        row = connection.execute(
            f"SELECT count(*), coalesce(sum(hash({hashed})::HUGEINT), 0)"
            " FROM read_parquet(?, hive_partitioning = false)",
            [files],
        ).fetchone()
    if row is None:
        raise BenchmarkError(f"DuckDB could not count the rows of {files}")
    return int(row[0]), str(row[1])


if __name__ == "__main__":
    main()
