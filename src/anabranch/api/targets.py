"""What a query is called among others, and where its answer goes, as its writer says."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import ConfigError
from anabranch.runtime.sinks.answers import Target
from anabranch.runtime.sinks.formats import SinkOptions, make_sink, sink_tag

if TYPE_CHECKING:
    from anabranch.api.writer import Writer

UNNAMED = "query"


def check_target(writer: Writer, spark: SparkSession) -> None:
    """Refuse what cannot be written, before anything is touched."""
    make_sink(writer._sink, spark, "", Path())


def target_of(writer: Writer, spark: SparkSession, checkpoint: Checkpoint, name: str) -> Target:
    """Where the answer to a query of this name goes."""
    chosen: SinkOptions = writer._sink
    sink = make_sink(chosen, spark, sink_tag(checkpoint.tag, name), checkpoint.scratch)
    return Target(sink, reads_all=chosen.function is None and chosen.format != "console")


def free_name(writer: Writer, taken: Collection[str]) -> str:
    """What a query is called among others: as the user says, or by a number."""
    name = writer._sink.name
    if name is not None:
        if name in taken:
            raise ConfigError(f"two queries are called {name!r}; give each a name of its own with queryName(...)")
        return name
    numbered = (f"{UNNAMED} {n}" for n in itertools.count(2))
    return next(free for free in itertools.chain([UNNAMED], numbered) if free not in taken)
