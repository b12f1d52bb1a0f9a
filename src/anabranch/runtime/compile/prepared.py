"""Queries that Spark has analysed, ready to run together."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.plan.network import Network, Request
from anabranch.plan.query import StreamSchema
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import Layout


@dataclass(frozen=True, slots=True)
class Plan:
    """Queries, ready to run together. `schemas` are those of their answers.

    `read` are the streams in the order in which Spark's query has them, with how many sources of Spark's each one
    consists of and how often it occurs.
    """

    requests: tuple[Request, ...]
    network: Network
    layout: Layout
    streams: dict[str, StreamSchema]
    columns: Columns
    schemas: tuple[T.StructType, ...]
    packed: DataFrame
    read: tuple[tuple[str, int, int], ...]
