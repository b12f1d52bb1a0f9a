"""Migrations of a query whose steps are made one by one."""

from __future__ import annotations

from functools import partial

from anabranch.language.shape import read_shape
from anabranch.runtime.driver.migration import (
    MOVING_STATE,
    ShadowProgress,
    begin_migration,
    end_migration,
    propose_migration,
)
from anabranch.runtime.driver.sessions import no_rows
from tests.oracle.steps import Steps


def begin(steps: Steps, shape: str, strategy: str, pace: int | None = None) -> ShadowProgress:
    """Begin to migrate the query to another order of its joins."""
    bound = steps.query._bound
    wanted = read_shape(shape, tuple(entry.alias for entry in bound.inputs))
    prepare = partial(steps.engine._prepare_again, running=steps.plan)
    proposal = propose_migration(steps.taken, steps.questions, prepare, steps.name, wanted, steps.plan)
    empty = no_rows(steps.spark, steps.plan)
    steps.opened, progress = begin_migration(steps.opened, proposal, strategy, empty, pace)
    steps.plan = steps.opened.plan
    return progress


def end(steps: Steps, progress: ShadowProgress) -> bool:
    """Go on with the new order if that is possible now; whether it was."""
    opened = end_migration(steps.opened, progress, no_rows(steps.spark, steps.plan))
    if opened is not None:
        steps.opened, steps.plan = opened, opened.plan
    return opened is not None


def migrate(steps: Steps, shape: str) -> None:
    """Move the state to another order of joins, all at once."""
    assert end(steps, begin(steps, shape, MOVING_STATE))
