"""What a change of a running run's queries has to keep to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.api.session_settings import settings_of_a_run
from anabranch.api.targets import check_target
from anabranch.errors import ConfigError
from anabranch.runtime.driver.read_once import read_once
from anabranch.state.store import local_path

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.writer import Writer
    from anabranch.checkpoint.directory import Checkpoint
    from anabranch.runtime.compile.prepared import PreparedPlan


def check_fits(engine: Engine, checkpoint: Checkpoint, trigger: dict[str, object], writer: Writer) -> None:
    """Refuse a query that cannot be answered beside those of a run."""
    settings_of_a_run(engine, [writer])
    if writer._query._engine is not engine:
        raise ConfigError("add() takes a writer of a query of this run's own engine")
    if writer._trigger not in (None, trigger):
        raise ConfigError("all queries of a run have one trigger; leave the trigger of the one you add out")
    if local_path(writer._checkpoint) not in (checkpoint.path, local_path(engine.checkpoint)):
        raise ConfigError("all queries of a run have one checkpoint; leave checkpointLocation out")
    writer._check_partitions()
    check_target(writer, engine.spark)


def check_may_restart(engine: Engine, checkpoint: Checkpoint, plan: PreparedPlan, what: str) -> None:
    """Refuse what needs rows or columns that Spark's query does not read, if it cannot be started anew."""
    for stream, source in read_once(plan, engine._sources.registered).items():
        raise ConfigError(
            f"no query can be {what}: the stream {stream} reads a {source}, which cannot go on where it was"
        )
    if (checkpoint.spark / "state").exists():
        raise ConfigError(
            f"no query can be {what}: a registered stream has state of its own in Spark (dropDuplicates, an "
            "aggregate or a join), which Spark cannot carry over to another query"
        )
