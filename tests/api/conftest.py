"""Two small streams with a known answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.oracle.feed import Feed
from tests.oracle.referee import Stream, join

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
QUERY = "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k"


@dataclass
class Pair:
    """Streams A and B, and engines over them."""

    spark: SparkSession
    directory: Path
    a: Feed
    b: Feed

    def engine(self, checkpoint: str = "checkpoint", batches_at_once: int = 1, **settings: object) -> ab.Engine:
        engine = ab.Engine(self.spark, checkpoint=self.directory / checkpoint, **{"processors": 2, **settings})
        engine.register("A", self.a.stream(self.spark, batches_at_once))
        engine.register("B", self.b.stream(self.spark, batches_at_once))
        return engine

    def query(self, checkpoint: str = "checkpoint", **settings: object) -> ab.Query:
        return self.engine(checkpoint, **settings).sql(QUERY)

    def expected(self, batches: int | None = None) -> pa.Table:
        """The answer to everything, or to the first batches."""
        streams = {name: Stream(feed.first(batches), ["k"]) for name, feed in (("A", self.a), ("B", self.b))}
        return join(streams, ["A.k", "A.v", "B.v AS w"])

    def add(self, *keys: int) -> None:
        """A batch with these keys on both sides."""
        for feed in (self.a, self.b):
            values = [f"{feed.directory.name}{len(feed.batches)}.{number}" for number in range(len(keys))]
            feed.add(k=list(keys), v=values)


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Pair:
    made = Pair(spark, tmp_path, Feed(tmp_path / "A", SCHEMA), Feed(tmp_path / "B", SCHEMA))
    made.add(1, 2, 2)
    made.add(2, 3, 1)
    return made
