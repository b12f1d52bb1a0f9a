"""A stream for a test: a directory of parquet files, one per batch, and what is in them.

Spark's file source takes the files in the order of their age and, with `maxFilesPerTrigger`, one per batch, so batch n
of a run holds file n of every feed. The files are written without Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import anabranch as ab
from tests.oracle import referee

LONG_AGO = 1_700_000_000


@dataclass
class Feed:
    """A growing stream. `batches` is what was added so far, a table per batch."""

    directory: Path
    schema: pa.Schema
    batches: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def add(self, **columns: list) -> pa.Table:
        """One more batch."""
        return self.add_table(pa.table(columns, schema=self.schema))

    def add_table(self, rows: pa.Table) -> pa.Table:
        """One more batch, as a table."""
        number = len(self.batches)
        path = self.directory / f"{number:04d}.parquet"
        pending = self.directory / f".{path.name}"
        pq.write_table(rows, pending)
        os.utime(pending, (LONG_AGO + number, LONG_AGO + number))
        os.replace(pending, path)
        self.batches.append(rows)
        return rows

    def stream(self, spark: SparkSession, batches_at_once: int = 1) -> DataFrame:
        """The feed as a streaming DataFrame."""
        schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", batches_at_once)
        return reader.parquet(str(self.directory))

    @property
    def complete(self) -> pa.Table:
        """Everything that was added."""
        return self.first(None)

    def first(self, batches: int | None) -> pa.Table:
        """What the first batches hold."""
        return pa.concat_tables([self.schema.empty_table(), *self.batches[:batches]])


def written(directory: Path, pattern: str = "**/*.parquet", reader: str = "read_parquet") -> pa.Table:
    """What a file sink wrote, read by DuckDB."""
    return referee.query(f"SELECT * FROM {reader}('{directory}/{pattern}')", {})


def on_time(batches: list[pa.Table], time: str, lateness: int) -> tuple[pa.Table, pa.Table]:
    """The rows that are on time and those that are late, by SPEC section 0: a row is late if it is older than the
    newest row of earlier batches minus the lateness. `time` is a column of integers in the unit of `lateness`."""
    newest: int | None = None
    kept, late = [batches[0].slice(0, 0)], [batches[0].slice(0, 0)]
    for batch in batches:
        limit = None if newest is None else newest - lateness
        times = batch.column(time).to_pylist()
        kept.append(batch.filter(pa.array([limit is None or ts >= limit for ts in times], pa.bool_())))
        late.append(batch.filter(pa.array([limit is not None and ts < limit for ts in times], pa.bool_())))
        newest = max([ts for ts in (newest, *times) if ts is not None], default=None)
    return pa.concat_tables(kept), pa.concat_tables(late)


def run_to_end(query: ab.Query, output: Path) -> ab.Run:
    """Process what is there into parquet files."""
    run = query.writeStream.format("parquet").option("path", str(output)).trigger(availableNow=True).start()
    run.awaitTermination()
    return run
