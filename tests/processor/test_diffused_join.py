"""Diffused groups of an m-way join, without Spark: whatever the roles and however they change, each result comes once.

Steps are taken by real processors on real run files. Between them groups are diffused, gathered, moved, spilled and
spread over other numbers of processors by chance, and rows of others wait.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.manual import diffusion, gathering, relocation, spilling
from anabranch.plan.placement import even_placement
from anabranch.state.groups import GroupSet
from anabranch.state.spill import CleanUp
from tests.kernel.join.streams import Join, joins, nested_loops, punctual_joins
from tests.kernel.join.test_delta_rule import purge_thresholds
from tests.oracle.profiles import examples
from tests.processor.cluster import Cluster, eager_and_careless

BATCHES = 6
GROUPS = 4
# Why a change may be refused.
REFUSALS = ["cannot be diffused now", "nothing of it is diffused", "while diffused", "gather it first"]


@pytest.fixture(autouse=True, scope="module")
def fast() -> Iterator[None]:
    with eager_and_careless():
        yield


def change_by_chance(cluster: Cluster, rng: random.Random) -> None:
    """One change of those that people can make; it may be refused with a reason."""
    inputs, processors = len(cluster.join.windows), cluster.distribution.processors
    groups = rng.sample(range(GROUPS), rng.randrange(1, GROUPS + 1))
    kind = rng.choice(["diffuse"] * 5 + ["gather", "gather", "relocate", "spill", "rescale"])
    try:
        if kind == "diffuse" and processors > 1:
            hosts = rng.sample(range(processors), rng.randrange(2, processors + 1))
            master = f"s{rng.randrange(inputs)}"
            cluster.change(lambda d, c: diffusion(d, c, groups, master, hosts, None, cluster.hold))
        elif kind == "gather":
            to = rng.choice([None, rng.randrange(processors)])
            cluster.change(lambda d, c: gathering(d, c, groups, to, None))
        elif kind == "relocate":
            to = rng.randrange(processors)
            cluster.change(lambda d, c: relocation(d, c, groups, to, None, None))
        elif kind == "spill":
            cluster.change(lambda d, c: spilling(d, c, groups, None))
        elif kind == "rescale":
            count = rng.randrange(1, 5)
            placement = even_placement(GROUPS, count)
            cluster.distribution = cluster.connections.rescale(cluster.distribution, count, (placement,))
            cluster.check()
    except ConfigError as error:
        if not any(reason in str(error) for reason in REFUSALS):
            raise


def hold_by_chance(cluster: Cluster, rng: random.Random) -> None:
    """Let rows of some groups that are not diffused wait in the next step."""
    routing = cluster.distribution.routings[0]
    chosen = [g for g in range(GROUPS) if rng.random() < 0.2 and routing.routes(g) is None]
    cluster.hold = {0: GroupSet.of(GROUPS, chosen)} if chosen else {}


def live(cluster: Cluster, seed: int, lateness: tuple[int, ...] | None, changes: int) -> None:
    """Feed all batches, with so many changes at most before each, and deliver at last what is owed."""
    join, rng = cluster.join, random.Random(seed)
    newest: list[int | None] = [None] * len(join.windows)
    everything = GroupSet.all(GROUPS)
    for batch in range(BATCHES):
        for _ in range(rng.randrange(changes + 1)):
            change_by_chance(cluster, rng)
        # Rows that wait are newer than they look, so nothing expires where rows can wait.
        cluster.purge = purge_thresholds(join, newest, lateness)
        if lateness is None:
            hold_by_chance(cluster, rng)
        rows = [join.segment(i, lambda row, batch=batch: row.lot == batch, seed) for i in range(len(join.windows))]
        some = GroupSet.of(GROUPS, [g for g in range(GROUPS) if rng.random() < 0.5])
        due = CleanUp(some, some if rng.random() < 0.7 else GroupSet(GROUPS, 0)) if rng.random() < 0.5 else None
        before = cluster.rows
        cluster.feed([segment.rows for segment in rows], due)
        assert cluster.total("received") == sum(map(len, rows))
        assert cluster.total("arrived") == cluster.total("received") + cluster.total("copied")
        if lateness is None:
            assert cluster.rows == before + sum(map(len, rows)), "each row is listed once, and none is lost"
        for i, own in enumerate(join.rows):
            newest[i] = max((row.ts for row in own if row.lot <= batch), default=None)
    cluster.hold, cluster.purge = {}, []
    for _ in range(2):  # what has waited goes on, and then all that is owed is delivered
        cluster.feed([None] * len(join.windows), CleanUp(everything, everything))


@examples(60)
@given(join=joins(lots=BATCHES), seed=st.integers(0, 2**32), processors=st.integers(2, 4))
def test_each_result_comes_once_whatever_is_diffused_over_which_hosts_and_when(
    tmp_path_factory: pytest.TempPathFactory, join: Join, seed: int, processors: int
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), join, processors, GROUPS)
    live(cluster, seed, None, 3)
    assert cluster.answer == nested_loops(join)


@examples(40)
@given(case=punctual_joins(lots=BATCHES), seed=st.integers(0, 2**32), processors=st.integers(2, 4))
def test_diffused_groups_expire_at_every_host_as_if_they_were_at_one(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[Join, tuple[int, ...]],
    seed: int,
    processors: int,
) -> None:
    join, lateness = case
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), join, processors, GROUPS)
    live(cluster, seed, lateness, 3)
    assert cluster.answer == nested_loops(join)
