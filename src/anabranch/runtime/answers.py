"""From what processors give to the sinks: every query's answer, once per batch.

A single query whose answer Spark has to finish gets the results as they come out of the processors. Otherwise the
processors write all answers to files in one pass. What is in its final form and goes to a Parquet sink is published as
it is; the rest is read by Spark, finished (conditions and SELECT) and handed to its sink.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import AnabranchError
from anabranch.kernel.delta import INPUT
from anabranch.plan.logical import quote
from anabranch.runtime.carried import restore
from anabranch.runtime.diagnosis import failing_joined_row
from anabranch.runtime.layout import AnswerLayout, Layout
from anabranch.runtime.processor import ARROW, YIELDED, ProcessorPlan
from anabranch.runtime.report import Report
from anabranch.runtime.sinks import FileSink, Sink

HANDED_OVER = "results"


@dataclass(frozen=True, slots=True)
class Target:
    """Where an answer goes. A sink that `reads_all` of it evaluates every row, so they can be counted on the way."""

    sink: Sink
    reads_all: bool = False


class Answers:
    """The answers of a network and where they go, in the network's order."""

    def __init__(self, layout: Layout, targets: Sequence[Target]) -> None:
        """Decide what becomes of each answer."""
        self._layouts = layout.answers
        self._targets = targets
        self._written = tuple(
            _form(answer, target.sink, alone=len(targets) == 1)
            for answer, target in zip(layout.answers, targets, strict=True)
        )
        self.plan: ProcessorPlan = replace(layout.processor, written=self._written)
        self.rows: list[int] = []
        self._delivering: tuple[AnswerLayout, DataFrame] | None = None

    @property
    def yielded(self) -> T.StructType:
        """The schema of what processors yield in their last round."""
        if YIELDED in self._written:
            return self._layouts[0].result_schema
        return T.StructType([T.StructField(INPUT, T.ShortType())])

    def folders(self, directory: Path, batch_id: int) -> tuple[Path | None, ...]:
        """Where processors write the answers of a batch; `directory` is the step's own."""
        folders: list[Path | None] = []
        for n, (form, target) in enumerate(zip(self._written, self._targets, strict=True)):
            if isinstance(target.sink, FileSink) and form not in (YIELDED, ARROW):
                folders.append(target.sink.stage(batch_id))
            else:
                folders.append(directory / HANDED_OVER / str(n) if form == ARROW else None)
        return tuple(folders)

    def deliver(
        self,
        processed: DataFrame,
        batch_id: int,
        folders: tuple[Path | None, ...],
        complete: Callable[[DataFrame], list[Report]],
    ) -> None:
        """Bring a batch to all sinks. `complete` runs what processors have not done yet and tells what they report."""
        if YIELDED in self._written:
            kept = self._hand_over(0, processed, batch_id)
            reports = complete(processed)
            self.rows = [_count(reports, 0, self._layouts[0], kept)]
            return
        evaluate(processed)
        reports = complete(processed)
        self.rows = []
        for n, folder in enumerate(folders):
            assert folder is not None, "all answers are written"
            self.rows.append(self._deliver_written(n, folder, reports, batch_id, processed.sparkSession))
        for folder in folders:
            if folder is not None and folder.parent.name == HANDED_OVER:
                shutil.rmtree(folder.parent, ignore_errors=True)

    def _deliver_written(
        self, n: int, folder: Path, reports: list[Report], batch_id: int, session: SparkSession
    ) -> int:
        answer, sink = self._layouts[n], self._targets[n].sink
        names = [report.result_files[n] for report in reports]
        files = [folder / name for name in names if name is not None]
        kept = None
        if self._written[n] == ARROW:
            kept = self._hand_over(n, _read(session, files, answer.result_schema), batch_id)
        elif isinstance(sink, FileSink):
            sink.publish(folder, files or sink.schema_alone(folder, answer.result_schema), batch_id)
        return _count(reports, n, answer, kept)

    def failing_row(self, error: BaseException) -> AnabranchError | None:
        """What to tell of an error in the conditions or the SELECT of the answer that was last given to a sink."""
        if self._delivering is None:
            return None
        answer, given = self._delivering
        return failing_joined_row(answer.residual, answer.outputs or (), restored(answer, given), error)

    def _hand_over(self, n: int, given: DataFrame, batch_id: int) -> int | None:
        """Give an answer to its sink, and count its rows where processors cannot."""
        target, results = self._targets[n], finish(self._layouts[n], given)
        self._delivering = self._layouts[n], given
        counted = Observation() if self._layouts[n].conditions and target.reads_all else None
        if counted is not None:
            results = results.observe(counted, F.count(F.lit(1)).alias("rows"))
        target.sink(results, batch_id)
        return None if counted is None else int(counted.get["rows"])


def finish(answer: AnswerLayout, given: DataFrame) -> DataFrame:
    """The answer, from what processors give: types restored, then conditions, then SELECT."""
    joined = restored(answer, given)
    kept = joined.where(answer.residual) if answer.residual else joined
    if answer.outputs is None:
        return kept
    return kept.selectExpr(*(f"{output.expression} AS {quote(output.name)}" for output in answer.outputs))


def restored(answer: AnswerLayout, given: DataFrame) -> DataFrame:
    """The rows with the columns' own types."""
    return given if answer.result_schema == answer.joined_schema else restore(given, answer.joined_schema)


def evaluate(rows: DataFrame) -> None:
    """Compute all of it."""
    rows.write.format("noop").mode("overwrite").save()


def _form(answer: AnswerLayout, sink: Sink, *, alone: bool) -> str:
    """How an answer leaves the processors."""
    if isinstance(sink, FileSink) and answer.outputs is None:
        compression = sink.parquet_compression(answer.result_schema)
        if compression is not None:
            return compression
    return YIELDED if alone else ARROW


def _count(reports: list[Report], n: int, answer: AnswerLayout, kept: int | None) -> int:
    """Rows of the answer in this batch; -1, as in Spark, where conditions were applied and nobody counted."""
    if not answer.conditions:
        return sum(report.results[n] for report in reports)
    return -1 if kept is None else kept


def _read(session: SparkSession, files: Sequence[Path], schema: T.StructType) -> DataFrame:
    """What processors have written, one partition per file."""
    paths = [str(path) for path in files]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pa.ipc.open_stream(paths[number]) as reader:
                    yield from reader

    return session.range(0, len(paths), numPartitions=max(len(paths), 1)).mapInArrow(read, schema)
