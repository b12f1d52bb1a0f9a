"""The name of a query among others, and the target of its answer, as its writer describes them."""

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


def check_writer(writer: object, method: str) -> None:
    """Refuse what a method was given instead of a writer, such as a query. A writer is known by its sink."""
    if not isinstance(getattr(writer, "_sink", None), SinkOptions):
        raise ConfigError(f"{method}() takes writers, query.writeStream..., not {type(writer).__name__}")


def check_target(writer: Writer, spark: SparkSession) -> None:
    """Refuse a sink that cannot be written to, before anything is touched."""
    make_sink(writer._sink, spark, "", Path())


def target_of(writer: Writer, spark: SparkSession, checkpoint: Checkpoint, name: str) -> Target:
    """The target of the answer to a query of this name."""
    chosen: SinkOptions = writer._sink
    sink = make_sink(chosen, spark, sink_tag(checkpoint.tag, name), checkpoint.scratch)
    return Target(sink, reads_all=chosen.function is None and chosen.format != "console")


def free_name(writer: Writer, taken: Collection[str]) -> str:
    """A name for a query that is not taken: the user's, or "query" with a number."""
    name = writer._sink.name
    if name is not None:
        if name in taken:
            raise ConfigError(f"two queries are called {name!r}; give each a name of its own with queryName(...)")
        return name
    numbered = (f"{UNNAMED} {n}" for n in itertools.count(2))
    return next(free for free in itertools.chain([UNNAMED], numbered) if free not in taken)
