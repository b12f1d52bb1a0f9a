"""Crashes while groups of a join are diffused, get another master, and are gathered: by a policy and by hand.

A policy's change is committed with a batch, a change by hand in a step of its own. The driver fails at every place of
both. What is fed has one key, or keys by Zipf's law, at rates that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch import __version__
from anabranch.checkpoint.survey.survey import survey
from anabranch.manager.actions import Action, DiffuseGroups, GatherGroups
from anabranch.manager.snapshot import Snapshot
from tests.oracle.lives import armed, is_of
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA, "t", 0) for name in "AB"}
WINDOW = 25  # milliseconds; a batch is ten
QUERY = f"SELECT A.v AS a, B.v AS b FROM A [RANGE {WINDOW} MILLISECONDS], B WHERE A.k = B.k"
GROUPS, PROCESSORS = 4, 3
ALL = tuple(range(GROUPS))

# Where the driver fails, and whether it is a policy that changes something. A change by hand has no batch.
CRASHES = [
    ("step.processed", True),
    ("step.before_sink", True),
    ("commit.checked", False),
    ("step.after_sink", True),
    ("step.before_commit", True),
    ("store.write", False),
    ("commit.checked", True),
    ("step.after_commit", True),
]
# What is done, one after the other, again and again: roles change with the rates.
CHANGES: list[Action] = [
    DiffuseGroups(0, ALL, 0, (0, 1, 2), (1.0, 2.0, 1.0), "a test wants it"),
    DiffuseGroups(0, ALL, 1, (2, 1), (1.0, 1.0), "a test wants it"),
    GatherGroups(0, ALL, None, "a test wants it"),
]
# What the run's own copy of the policy decides on next.
NEXT: list[Action] = []


class Told:
    """Decides on what it is told."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        yield from NEXT


def rows(chance: np.random.Generator, number: int, count: int, keys: str) -> pa.Table:
    """Rows of a batch: of one key, or of keys by Zipf's law."""
    k = np.full(count, 7) if keys == "one key" else np.minimum(chance.zipf(1.5, count), 50)
    times = 10 * number + np.sort(chance.integers(0, 10, count))
    return pa.table([k, times, chance.integers(0, 1_000_000, count)], schema=SCHEMA)


def by_hand(steps: Steps, change: Action) -> None:
    if isinstance(change, DiffuseGroups):
        steps.public.diffuse(change.groups, master="AB"[change.master], over=change.hosts)
    else:
        steps.public.undiffuse(change.groups)


def crashed(
    spark: SparkSession, marker: Path, failpoint: str, steps: Steps, batch: dict, change: Action | None
) -> bool:
    """Feed a batch, and make a change by hand if there is one; whether the driver has crashed at the failpoint."""
    try:
        if change is not None:
            steps.feed(batch)
        with armed(spark, failpoint, marker):
            if change is None:
                steps.feed(batch)
            else:
                by_hand(steps, change)
    except Exception as error:
        if not is_of(failpoint, error):
            raise
        return True
    return False


@pytest.mark.parametrize("seed", [0])
def test_crashes_while_groups_are_spread_switched_and_gathered_change_no_answer(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Every change meets every crash in eight seeds, of which `make soak` draws others."""
    chance = np.random.default_rng(seed)
    given: dict[int, pa.Table] = {}
    fed: list[dict[str, pa.Table]] = []

    def take(results: DataFrame, batch_id: int) -> None:
        again = results.toArrow()
        if batch_id in given:
            assert_same_rows(again, given[batch_id])  # it has reached the sink before
        given[batch_id] = again

    def opened() -> Steps:
        settings = {"policies": [Told()]}
        return Steps(
            spark, tmp_path / "c", QUERY, KINDS, processors=PROCESSORS, groups=GROUPS, sink=take, settings=settings
        )

    steps = opened().__enter__()
    diffused: list[bool] = []
    for n in range(len(CRASHES)):
        failpoint, by_policy = CRASHES[(n + seed) % len(CRASHES)]
        change = CHANGES[n % len(CHANGES)]
        counts, keys = (40, 8) if n % 3 == 0 else (8, 40), ["one key", "by Zipf"][(n // 3 + seed) % 2]
        fed.append({name: rows(chance, n, count, keys) for name, count in zip("AB", counts, strict=True)})
        NEXT[:] = [change] if by_policy else []
        hand = None if by_policy else change
        assert crashed(spark, tmp_path / f"crash-{n}", failpoint, steps, fed[n], hand), failpoint
        steps.__exit__(None, None, None)
        steps = opened().__enter__()
        if steps.next_batch == n:
            steps.feed(fed[n])  # Spark brings it again
        if not by_policy:
            by_hand(steps, change)
        NEXT.clear()
        steps.check_owners()
        diffused.append(any(routing.diffused for routing in steps.runner.context.in_force.distribution.routings))
        assert not survey(tmp_path / "c", __version__).damage
        everything = {name: pa.concat_tables([batch[name] for batch in fed]) for name in "AB"}
        streams = {
            name: Stream(table, ["k"], "t", WINDOW if name == "A" else None) for name, table in everything.items()
        }
        assert_same_rows(pa.concat_tables(given.values()), join(streams, ["A.v", "B.v"]))
        totals = steps.taken.last_step().totals
        assert totals["received"] == [len(table) for table in everything.values()], "each row once"
        assert totals["late"] == totals["rejected"] == [0, 0]
    assert diffused == [n % 3 != 2 for n in range(len(CRASHES))]
    steps.__exit__(None, None, None)
