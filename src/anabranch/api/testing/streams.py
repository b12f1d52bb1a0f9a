"""Streams whose batches a test writes: a schema, and the function that rows go through before queries see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from anabranch.api.testing.rows import Rows, table_of
from anabranch.errors import ConfigError
from anabranch.runtime.spark.internals import empty_frame

# A schema as text ("k BIGINT, v STRING"), as a type of Spark's, or as one of Arrow's.
Schema: TypeAlias = str | T.StructType | pa.Schema

# Spark's setting: Arrow tables of at most this many bytes become local relations.
_LOCAL_RELATIONS = "spark.sql.execution.arrow.localRelationThreshold"


@dataclass(frozen=True, slots=True)
class FedStream:
    """A stream that is fed by hand. Its rows go `through` a function of the program first, if there is one."""

    name: str
    types: T.StructType
    arrow: pa.Schema
    through: Callable[[DataFrame], DataFrame] | None

    def table(self, session: SparkSession, rows: Rows) -> pa.Table:
        """Rows of the stream as an Arrow table."""
        return table_of(self.name, rows, self.arrow, session.conf.get("spark.sql.session.timeZone") or "UTC")

    def frame(self, session: SparkSession, rows: pa.Table | None = None) -> DataFrame:
        """A batch of the stream, in a session that was prepared (`prepare`)."""
        made = session.createDataFrame(rows, self.types) if rows else empty_frame(session, self.types)
        return made if self.through is None else self.through(made)


def fed_stream(
    spark: SparkSession, name: str, schema: Schema, through: Callable[[DataFrame], DataFrame] | None
) -> FedStream:
    """A stream of this schema; refused if the schema is not usable."""
    if isinstance(schema, pa.Schema):
        return FedStream(name, from_arrow_schema(schema, prefer_timestamp_ntz=True), schema, through)
    if isinstance(schema, str):
        try:
            schema = spark.createDataFrame([], schema).schema
        except PySparkException as error:
            raise ConfigError(f"stream {name!r}: {error}") from None
    if not isinstance(schema, T.StructType):
        raise ConfigError(f"stream {name!r}: a schema is a text such as 'k BIGINT, v STRING', not {schema!r}")
    return FedStream(name, schema, to_arrow_schema(schema, timezone="UTC"), through)


def prepare(session: SparkSession) -> None:
    """Let batches come as RDDs, as Structured Streaming brings them; a local relation could be optimised away."""
    session.conf.set(_LOCAL_RELATIONS, "0")
