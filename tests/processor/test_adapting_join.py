"""The engine's own policies on a join, without Spark: whatever they decide on together, each result comes once, and
nothing that they decide on is refused as nonsense.

Steps are taken by real processors on real run files, and actions are carried out as in a run. Rows and results take
processors a second each, and longer on those that are slow for a while, so policies see reasons to adapt.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import ConfigError
from anabranch.kernel.join.combinations import UNBOUNDED
from anabranch.manager.decision_maker import DecisionMaker
from anabranch.manager.manual import diffusion, gathering, relocation, spilling
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.runtime_monitor import Moment
from anabranch.manager.snapshot import Policy
from anabranch.state.groups import GroupSet
from anabranch.state.spill import CleanUp
from tests.kernel.join.streams import Join, Row, nested_loops
from tests.oracle.chance import ChanceDiffusion, ChanceMoves, ChanceSpill, Counted
from tests.oracle.profiles import examples
from tests.processor.cluster import Cluster, eager_and_careless

BATCHES = 24
GROUPS = 8
REFUSALS = ["cannot be diffused now", "gather it first", "while diffused", "is on its way", "are on their way"]


@pytest.fixture(autouse=True, scope="module")
def fast() -> Iterator[None]:
    with eager_and_careless():
        yield


def drawn_join(rng: random.Random) -> Join:
    """A join of two or three inputs at rates that change, with a hot key for a while."""
    inputs = rng.choice([2, 2, 3])
    most = {2: 8, 3: 3}[inputs]
    rates = [[rng.choice([0, 1, most]) for _ in range(BATCHES // 6)] for _ in range(inputs)]
    hot = [rng.random() < 0.4 for _ in range(BATCHES // 6)]

    def row(batch: int) -> Row:
        return Row(0 if hot[batch // 6] and rng.random() < 0.8 else rng.randrange(4), batch, batch)

    rows = tuple(tuple(row(batch) for batch in range(BATCHES) for _ in range(own[batch // 6])) for own in rates)
    return Join((UNBOUNDED,) * inputs, rows)


def drawn_policies(rng: random.Random) -> list[Policy]:
    """`Adaptive`, or some of the policies that it is made of; and perhaps one that decides by chance, first or last."""
    seed = rng.randrange(1 << 30)
    eager: list[Policy] = [
        ab.Diffusion(period=1, hysteresis=1.0),
        ab.FluxLoad(),
        ab.FluxMemory(),
        ab.SkewBuffer(),
        ab.LazyDisk(),
        ab.ActiveDisk(),
        ab.Spill(),
    ]
    own = [Adaptive()] if rng.random() < 0.5 else rng.sample(eager, 4)
    policies: list[Policy] = [Counted(policy, seed) for policy in own]
    by_chance: list[Policy] = [ChanceMoves(seed), ChanceSpill(seed), ChanceDiffusion(seed)]
    if rng.random() < 0.4:
        policies.insert(rng.choice([0, len(policies)]), rng.choice(by_chance))
    return policies


def change_by_hand(cluster: Cluster, rng: random.Random) -> None:
    """What a user does between two batches, while policies have decided on something else; it may be refused."""
    groups, p = rng.sample(range(GROUPS), rng.randrange(1, GROUPS)), rng.randrange(cluster.processors)
    kind = rng.choice(["diffuse", "gather", "relocate", "spill"])
    before = cluster.distribution
    try:
        if kind == "diffuse" and cluster.processors > 1:
            hosts = rng.sample(range(cluster.processors), 2)
            cluster.change(lambda d, c: diffusion(d, c, groups, "s0", hosts, None, cluster.hold))
        elif kind == "gather":
            diffused = [group for group, _ in before.routings[0].diffused]
            if diffused:
                cluster.change(lambda d, c: gathering(d, c, diffused, rng.choice([None, p]), None))
        elif kind == "relocate":
            cluster.change(lambda d, c: relocation(d, c, groups, p, None, rng.choice([None, 500])))
        elif kind == "spill":
            cluster.change(lambda d, c: spilling(d, c, groups, None))
    except ConfigError as error:
        if not any(reason in str(error) for reason in REFUSALS):
            raise
    held = cluster.connections.held_back(cluster.distribution)
    if held:
        cluster.hold = {0: cluster.hold.get(0, GroupSet(GROUPS, 0)) | held[0]}


def live(cluster: Cluster, rng: random.Random, policies: list[Policy]) -> Counter[str]:
    """Feed all batches, and deliver at last what is owed; how often which events were told of."""
    now = [0.0]
    budgets = MemoryBudgets(rng.choice([None, 2_000, 20_000]))
    maker = DecisionMaker(cluster.shape, cluster.state, budgets, policies, lambda: now[0], cuts=cluster.cuts)
    cluster.connections = maker.connections
    told, clean_up = Counter[str](), None
    for batch in range(BATCHES):
        inputs = range(len(cluster.join.windows))
        rows = [cluster.join.segment(i, lambda row, b=batch: row.lot == b, batch).rows for i in inputs]
        cluster.feed(rows, clean_up)
        now[0] += 10.0
        moment = Moment(
            step=cluster.steps,
            since=(None,),
            settled=(),
            cleaned_up={} if clean_up is None else {0: clean_up},
            arrived=cluster.total("received"),
            usual=5.0,
        )
        change = maker.adapt(moment, cluster.distribution, cluster.reports)
        cluster.distribution, cluster.hold = change.distribution, dict(change.hold)
        clean_up = change.clean_up.get(0)
        cluster.check()
        told.update(sentence.kind for sentence in change.sentences)
        if rng.random() < 0.1:
            change_by_hand(cluster, rng)
    everything = GroupSet.all(GROUPS)
    while cluster.distribution.moving:
        cluster.distribution, _ = cluster.connections.go_on(cluster.distribution)
    cluster.hold = {}
    for _ in range(2):
        cluster.feed([None] * len(cluster.join.windows), CleanUp(everything, everything))
    return told


@examples(24)
@given(seed=st.integers(0, 2**32))
def test_whatever_policies_decide_on_together_each_result_comes_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    join, directory = drawn_join(rng), tmp_path_factory.mktemp("cluster")
    cluster = Cluster(Path(directory), join, rng.choice([2, 3, 4]), GROUPS)
    live(cluster, rng, drawn_policies(rng))
    assert cluster.answer == nested_loops(join)
