"""Where the answer to a query goes, as its writer says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from anabranch.runtime.answers import Target
from anabranch.runtime.checkpoint import Checkpoint
from anabranch.runtime.sinks import SinkOptions, make_sink, sink_tag

if TYPE_CHECKING:
    from anabranch.api.writer import Writer


def check_target(writer: Writer, spark: SparkSession) -> None:
    """Refuse what cannot be written, before anything is touched."""
    make_sink(writer._sink, spark, "", Path())


def target_of(writer: Writer, spark: SparkSession, checkpoint: Checkpoint, name: str) -> Target:
    """Where the answer to a query of this name goes."""
    chosen: SinkOptions = writer._sink
    sink = make_sink(chosen, spark, sink_tag(checkpoint.tag, name), checkpoint.scratch)
    return Target(sink, reads_all=chosen.function is None and chosen.format != "console")
