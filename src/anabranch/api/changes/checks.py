"""Checks of changes: refuse whatever a run cannot do while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.api.session_settings import settings_of_a_run
from anabranch.api.targets import check_target, target_of
from anabranch.errors import ConfigError
from anabranch.plan.join_order import shape_of
from anabranch.plan.shape_text import shape_text
from anabranch.runtime.driver.open_run import Proposal, Question
from anabranch.runtime.driver.read_once import read_once
from anabranch.runtime.sinks.answers import Target
from anabranch.state.store import local_path

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.writer import Writer
    from anabranch.checkpoint.folder.directory import Checkpoint
    from anabranch.runtime.compile.prepared import PreparedPlan


def check_fits(engine: Engine, checkpoint: Checkpoint, trigger: dict[str, object], writer: Writer) -> None:
    """Refuse a query that cannot be answered beside those of a run."""
    settings_of_a_run(engine, [writer])
    if writer._query._engine is not engine:
        raise ConfigError("add() and change() take a query of this run's own engine")
    if writer._trigger not in (None, trigger):
        raise ConfigError("all queries of a run have one trigger; leave the trigger of the one you add out")
    if local_path(writer._checkpoint) not in (checkpoint.path, local_path(engine.checkpoint)):
        raise ConfigError("all queries of a run have one checkpoint; leave checkpointLocation out")
    writer._check_partitions()
    check_target(writer, engine.spark)


def check_may_restart(engine: Engine, checkpoint: Checkpoint, plan: PreparedPlan, what: str) -> None:
    """Refuse a change for which Spark's query would have to be started anew, if that is not possible.

    The error says that no query can be `what`, such as "added".
    """
    for stream, source in read_once(plan, engine._sources.registered).items():
        raise ConfigError(
            f"no query can be {what}: the stream {stream} reads a {source}, which cannot go on where it was"
        )
    if (checkpoint.spark / "state").exists():
        raise ConfigError(
            f"no query can be {what}: a registered stream has state of its own in Spark (dropDuplicates, an "
            "aggregate or a join), which Spark cannot carry over to another query"
        )


def question_of(engine: Engine, checkpoint: Checkpoint, writer: Writer, kept: Target | None) -> Question:
    """The question with which a run is opened for a query. Its answer goes to the target that is `kept`, if there is
    one."""

    def target(named: str) -> Target:
        return kept or target_of(writer, engine.spark, checkpoint, named)

    return Question(writer._query._bound, writer._query._described, target)


def kept_orders(proposal: Proposal) -> Iterator[str]:
    """The messages on queries whose joins go on in another order than the program says, since they have migrated."""
    for request, question in zip(proposal.plan.requests, proposal.questions.values(), strict=True):
        if request.query.logical is None:
            continue
        in_force, in_program = shape_of(request.query), shape_of(question.query)
        if in_force != in_program:
            aliases = [entry.alias for entry in request.query.inputs]
            yield (
                f"{request.name}: joins go on as {shape_text(in_force, aliases)}, which they have come to, and not as "
                f"{shape_text(in_program, aliases)}, as the program says"
            )
