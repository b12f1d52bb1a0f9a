"""From what processors give to the sinks: every query's answer, once per batch.

The processors write all answers to files in one pass, before any sink sees one. What is in its final form and goes to a
Parquet sink is published as it is; the rest is read by Spark, finished (conditions and SELECT) and handed to its sink,
which may read it as often and in whatever parts it likes, while the batch lasts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import AnabranchError
from anabranch.plan.query import quote
from anabranch.processor.tasks import ARROW, COUNTED, ProcessorPlan
from anabranch.runtime.compile.layout import AnswerLayout, Layout, Outlet
from anabranch.runtime.rows.carried import restore
from anabranch.runtime.rows.diagnosis import failing_joined_row
from anabranch.runtime.sinks.formats import Discard, FileSink, Sink
from anabranch.runtime.spark.internals import empty_frame
from anabranch.state.report import Report

HANDED_OVER = "results"


@dataclass(frozen=True, slots=True)
class Target:
    """Where an answer goes. A sink that `reads_all` of it evaluates every row, so they can be counted on the way."""

    sink: Sink
    reads_all: bool = False


class Answers:
    """The answers of a network and where they go, in the network's order."""

    def __init__(self, layout: Layout, targets: Sequence[Target]) -> None:
        """Decide what becomes of what comes out of each outlet."""
        self._outlets = layout.outlets
        self._answers = layout.answers
        self._targets = targets
        forms: dict[int, str] = {}
        for answer, target in zip(layout.answers, targets, strict=True):
            outlets = [layout.outlets[n] for n in answer.outlets]
            forms |= dict.fromkeys(answer.outlets, _form(outlets, target.sink))
        self._written = tuple(forms[n] for n in range(len(layout.outlets)))
        self.plan: ProcessorPlan = replace(layout.processor, written=self._written)
        self.rows: dict[str, int] = {}
        self._delivering: tuple[Outlet, DataFrame] | None = None

    def folders(self, directory: Path, batch_id: int) -> tuple[Path | None, ...]:
        """Where processors write what comes out of each outlet; `directory` is the step's own."""
        folders: list[Path | None] = [None] * len(self._outlets)
        for answer, target in zip(self._answers, self._targets, strict=True):
            form = self._written[answer.outlets[0]]
            staged = target.sink.stage(batch_id) if _is_published(form) and isinstance(target.sink, FileSink) else None
            for n in answer.outlets:
                folders[n] = directory / HANDED_OVER / str(n) if form == ARROW else staged
        return tuple(folders)

    def deliver(
        self, reports: Sequence[Report], batch_id: int, folders: tuple[Path | None, ...], session: SparkSession
    ) -> None:
        """Bring what processors have written in a batch, by their reports, to all sinks."""
        self._delivering = None
        self.rows = {
            answer.name: self._deliver(number, folders, reports, batch_id, session)
            for number, answer in enumerate(self._answers)
        }
        for folder in folders:
            if folder is not None and folder.parent.name == HANDED_OVER:
                shutil.rmtree(folder.parent, ignore_errors=True)

    def failing_row(self, error: BaseException) -> AnabranchError | None:
        """What to tell of an error in the conditions or the SELECT of the answer that was last given to a sink."""
        if self._delivering is None:
            return None
        outlet, given = self._delivering
        return failing_joined_row(outlet.residual, outlet.outputs or (), restored(outlet, given), error)

    def _deliver(
        self,
        number: int,
        folders: tuple[Path | None, ...],
        reports: Sequence[Report],
        batch_id: int,
        session: SparkSession,
    ) -> int:
        outlets, sink = self._answers[number].outlets, self._targets[number].sink
        if self._written[outlets[0]] == COUNTED:
            return self._count(reports, number, None)
        files: list[list[Path]] = []
        for n in outlets:
            folder = folders[n]
            assert folder is not None, "what is written has a folder"
            names = [report.result_files[n] for report in reports]
            files.append([folder / name for name in names if name is not None])
        kept = None
        if not _is_published(self._written[outlets[0]]):
            schemas = [self._outlets[n].result_schema for n in outlets]
            given = [_read(session, paths, schema, batch_id) for paths, schema in zip(files, schemas, strict=True)]
            kept = self._hand_over(number, given, batch_id)
        elif isinstance(sink, FileSink):
            staged = folders[outlets[0]]
            assert staged is not None, "what is written has a folder"
            found = [path for paths in files for path in paths]
            schema = self._outlets[outlets[0]].result_schema
            sink.publish(staged, found or sink.schema_alone(staged, schema), batch_id)
        return self._count(reports, number, kept)

    def _hand_over(self, number: int, given: Sequence[DataFrame], batch_id: int) -> int | None:
        """Give an answer to its sink, and count its rows where processors cannot."""
        target = self._targets[number]
        outlets = [self._outlets[n] for n in self._answers[number].outlets]
        results = _united([finish(outlet, rows) for outlet, rows in zip(outlets, given, strict=True)])
        self._delivering = (outlets[0], given[0]) if len(outlets) == 1 else None
        filtered = any(outlet.conditions for outlet in outlets)
        counted = Observation() if filtered and target.reads_all else None
        if counted is not None:
            results = results.observe(counted, F.count(F.lit(1)).alias("rows"))
        target.sink(results, batch_id)
        return None if counted is None else int(counted.get["rows"])

    def _count(self, reports: Sequence[Report], number: int, kept: int | None) -> int:
        """Rows of an answer in this batch; -1, as in Spark, where conditions were applied and nobody counted."""
        outlets = self._answers[number].outlets
        if not any(self._outlets[n].conditions for n in outlets):
            return sum(report.results[n] for report in reports for n in outlets)
        return -1 if kept is None else kept


def answer_schema(spark: SparkSession, layout: Layout, answer: AnswerLayout) -> T.StructType:
    """The schema of an answer."""
    outlets = [layout.outlets[n] for n in answer.outlets]
    return _united([finish(outlet, empty_frame(spark, outlet.result_schema)) for outlet in outlets]).schema


def finish(outlet: Outlet, given: DataFrame) -> DataFrame:
    """A part of an answer, from what processors give: types restored, then conditions, then SELECT."""
    joined = restored(outlet, given)
    kept = joined.where(outlet.residual) if outlet.residual else joined
    if outlet.outputs is None:
        return kept
    return kept.selectExpr(*(f"{output.expression} AS {quote(output.name)}" for output in outlet.outputs))


def restored(outlet: Outlet, given: DataFrame) -> DataFrame:
    """The rows with the columns' own types."""
    return given if outlet.result_schema == outlet.joined_schema else restore(given, outlet.joined_schema)


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, parts)


def _is_published(form: str) -> bool:
    """Whether what processors write is the answer itself."""
    return form not in (COUNTED, ARROW)


def _form(outlets: Sequence[Outlet], sink: Sink) -> str:
    """How an answer leaves the processors."""
    final = all(outlet.outputs is None for outlet in outlets)
    if final and isinstance(sink, Discard):
        return COUNTED
    alike = len({outlet.result_schema.json() for outlet in outlets}) == 1
    if final and alike and isinstance(sink, FileSink):
        compression = sink.parquet_compression(outlets[0].result_schema)
        if compression is not None:
            return compression
    return ARROW


def _read(session: SparkSession, files: Sequence[Path], schema: T.StructType, batch_id: int) -> DataFrame:
    """What processors have written, one partition per file."""
    paths = [str(path) for path in files]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    file = pa.memory_map(paths[number])
                except FileNotFoundError:
                    raise AnabranchError(
                        f"the results of batch {batch_id} are gone: they can be read while the function that they are "
                        "given to runs; write or collect them there"
                    ) from None
                with file, pa.ipc.open_stream(file) as reader:
                    yield from reader

    return session.range(0, len(paths), numPartitions=max(len(paths), 1)).mapInArrow(read, schema)
