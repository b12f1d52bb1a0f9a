"""The outlets of a processor, where its results leave it: into files that its report names, or only counted."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.processor.tasks import ARROW, COUNTED, ProcessorPlan, StepTask
from anabranch.state.report import Report

# How the name of a result file ends until it is published.
UNPUBLISHED = ".part"


class Writer(Protocol):
    """A writer of results in one of the formats."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write what is left, and close the file."""


class Outlets:
    """The outlets of one attempt. Files begin with the name of the attempt, and its report counts."""

    def __init__(self, plan: ProcessorPlan, task: StepTask, report: Report, name: str) -> None:
        """Open nothing yet."""
        self._plan = plan
        self._task = task
        self._report = report
        self._name = name
        self._writers: dict[int, Writer] = {}

    def take(self, outlet: int, results: pa.RecordBatch, combinations: int) -> None:
        """Write or count results that leave by an outlet; they were selected of so many combinations."""
        self._report.combinations += combinations
        self._report.results[outlet] += len(results)
        if len(results) and self._plan.written[outlet] != COUNTED:
            self._writer(outlet, results.schema).write_batch(results)

    def close(self) -> None:
        """Close what results were written to."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _writer(self, outlet: int, schema: pa.Schema) -> Writer:
        """Where what comes out of an outlet is written."""
        if outlet not in self._writers:
            folder, form = self._task.results[outlet], self._plan.written[outlet]
            assert folder is not None, "what is written has a folder"
            Path(folder).mkdir(parents=True, exist_ok=True)
            suffix = "arrow" if form == ARROW else f"parquet{UNPUBLISHED}"
            name = f"{self._task.processor:04d}-{self._name}-{outlet}.{suffix}"
            path = Path(folder) / name
            self._report.result_files[outlet] = name
            self._writers[outlet] = (
                pa.ipc.new_stream(str(path), schema)
                if form == ARROW
                else pq.ParquetWriter(str(path), schema, compression=form)
            )
        return self._writers[outlet]
