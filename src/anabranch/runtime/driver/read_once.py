"""Streams whose rows cannot be read twice: a batch of theirs cannot be repeated, so a run over them cannot be resumed.

Of the sources that come with Spark only the socket is one: it forgets the rows it has sent. Files, Kafka, `rate` and
tables give the same rows for the same offsets. Sources from elsewhere are trusted to do so.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import ResumeMismatchError
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.prepare import streaming_leaves

NOT_REPLAYABLE = frozenset({"socket"})
INSTEAD = "write what it sends into files or Kafka first, and read these"


def read_once(plan: PreparedPlan, frames: Mapping[str, DataFrame]) -> dict[str, str]:
    """The streams of a plan that cannot be read twice; by stream, the name of such a source."""
    sources = {name: [leaf.toString() for leaf in streaming_leaves(frames[name])] for name, _, _ in plan.read}
    return {name: source for name, leaves in sources.items() for source in NOT_REPLAYABLE.intersection(leaves)}


def check_replay(checkpoint: Checkpoint, plan: PreparedPlan, frames: Mapping[str, DataFrame]) -> list[str]:
    """Refuse to resume with streams that cannot be read twice; return a warning for each that begins now."""
    begun = checkpoint.last_step() is not None or checkpoint.has_planned(-1)
    before = {name for name, _, _ in checkpoint.plan(checkpoint.plan_number)["read"]} if begun else set()
    warnings = []
    for name, source in read_once(plan, frames).items():
        if name in before:
            raise ResumeMismatchError(
                f"checkpoint {checkpoint.path} cannot be resumed: the stream {name} reads a {source}, which cannot "
                "send again what it has sent before. Choose a new checkpoint directory; to be able to resume, "
                f"{INSTEAD}"
            )
        warnings.append(
            f"the stream {name} reads a {source}, which cannot send again what it has sent before: a run that stops or "
            f"crashes cannot be resumed, and its rows are lost with it; {INSTEAD}"
        )
    return warnings
