"""The policy `Diffusion` enters, switches and leaves on its own: work is even by count, and the answer is DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.picture import diffusion_lines
from anabranch.api.progress import progress_of
from anabranch.checkpoint.survey.survey import survey
from anabranch.manager.actions import Action
from anabranch.manager.diffusion import master_of
from anabranch.manager.policies import diffusion
from anabranch.manager.snapshot import Snapshot
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
SECOND = 1_000  # event time in whole numbers is in milliseconds
KINDS = {"A": Kind(SCHEMA, "t", 0), "B": Kind(SCHEMA, "t", 0)}
QUERY = "SELECT A.k, A.v, B.v AS w FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] WHERE A.k = B.k"
HOT = 7


@dataclass
class ByCount:
    """The policy, with rows and results that cost the same on every processor: so a test does not depend on times."""

    policy: ab.Diffusion = field(default_factory=lambda: ab.Diffusion(period=2))

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        processors = tuple(
            replace(
                view,
                operators=tuple(replace(one, cpu=1e-6 * (one.rows + one.results)) for one in view.operators),
            )
            for view in snapshot.processors
        )
        return self.policy.decide(replace(snapshot, processors=processors))


def rows(number: int, hot: int, cold: int, first: int) -> pa.Table:
    """Rows of a batch, which is a second: so many of the hot key, and of other keys."""
    keys = [HOT] * hot + [100 + (first + n) % 400 for n in range(cold)]
    values = [10_000 * number + first + n for n in range(len(keys))]
    return pa.table({"k": keys, "t": [number * SECOND] * len(keys), "v": values}, schema=SCHEMA)


def busiest(steps: Steps) -> float:
    """The rows and results of the busiest processor in the last step, by the mean."""
    work = [sum(report.worked) + sum(report.produced) for report in steps.results[-1].reports]
    return max(work) / (sum(work) / len(work))


def test_a_hot_key_is_spread_mastered_by_the_faster_stream_and_gathered_when_the_skew_is_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffusion, "FIRST_REST", 3)
    phases = {8: (160, 80), 13: (80, 160), 20: (0, 0)}  # up to which batch, hot rows of A and B
    fed = {"A": rows(0, 0, 0, 0), "B": rows(0, 0, 0, 0)}
    masters, skew = [], []
    with Steps(
        spark, tmp_path / "c", QUERY, KINDS, processors=4, groups=64, settings={"policies": [ByCount()]}
    ) as steps:
        for number in range(1, 21):
            hot = next(counts for last, counts in phases.items() if number <= last)
            batch = {"A": rows(number, hot[0], 160, 0), "B": rows(number, hot[1], 80, 5_000)}
            fed = {name: pa.concat_tables([fed[name], table]) for name, table in batch.items()}
            steps.feed(batch)
            steps.check_owners()
            skew.append(busiest(steps))
            [routing] = steps.runner.context.in_force.distribution.routings
            masters.append([master_of(routes) for _, routes in routing.diffused])
            if number == 10:
                shown = progress_of(steps.results[-1], {})
                explained = list(diffusion_lines(steps.results[-1]))
                inspected = survey(tmp_path / "c", ab.__version__)
        kinds = [event.kind for event in steps.events.since() if event.kind in ("diffuse", "gather")]
        streams = {name: Stream(table, ["k"], "t", SECOND) for name, table in fed.items()}
        assert_same_rows(steps.answer, join(streams, ["A.k", "A.v", "B.v AS w"]))
    [entry] = shown.diffused
    assert (entry.operator, entry.master, entry.others, entry.step) == ("join of A, B", "B", ("A",), 11)
    assert len(entry.hosts) == 4
    assert "rows of B come in a batch" in entry.reason
    assert shown.copied == pytest.approx(3 * 160, abs=60), "the step is the last one in which A was the master"
    assert entry.sentence in explained
    assert explained[-1].startswith(f"what diffusion costs: {shown.copied} rows copied, ")
    assert inspected.diffused == shown.diffused
    assert inspected.copied == shown.copied
    assert not inspected.damage
    assert min(skew[:3]) > 2, "one processor has most of the work"
    entered, switched, left = masters.index([0]), masters.index([1]), masters.index([], 13)
    assert entered <= 3
    assert switched <= 11
    assert max(skew[entered + 2 : 8]) <= 1.3
    assert max(skew[switched + 2 : 13]) <= 1.3
    assert masters[left:] == [[]] * (20 - left)
    assert kinds == ["diffuse", "diffuse", "gather"]
