"""Policies that decide by chance, so that whatever can be done to a running query is done to it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.manager.actions import (
    Action,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    MigrateQuery,
    PartOperator,
    ReallocateOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.snapshot import Policy, Snapshot


@dataclass(frozen=True)
class ChanceSpill:
    """After every step, push some groups of every operator, or all, or none."""

    seed: int

    def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
        rng = random.Random(f"{self.seed} {snapshot.step}")
        for processor in snapshot.processors:
            for seen in (seen for seen in processor.operators if seen.spillable):
                share = rng.choice([0, 0.3, 0.7, 1])
                diffused = [] if seen.diffused is None else seen.diffused.numbers().tolist()
                active = [g for g in seen.statistics.groups[seen.statistics.bytes > 0].tolist() if g not in diffused]
                groups = tuple(group for group in active if rng.random() < share)
                if groups:
                    yield SpillGroups(processor.processor, seen.operator, groups, 0, "chance would have it")


@dataclass(frozen=True)
class ChanceMoves:
    """After every step, move some groups to other processors, at once or by and by, and let rows of others wait."""

    seed: int
    waits: bool = True

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        rng = random.Random(f"{self.seed} {snapshot.step} moves")
        for processor in snapshot.processors:
            here = processor.partitions()
            for family in sorted(set(here.family.tolist())):
                groups = here.group[(here.family == family) & ~here.diffused].tolist()
                chosen = tuple(group for group in groups if rng.random() < rng.choice([0, 0.3, 1]))
                others = [seen.processor for seen in snapshot.processors if seen is not processor]
                if chosen and others and rng.random() < 0.6:
                    pace = rng.choice([None, None, 1_000, 100_000]) if self.waits else None
                    size = rng.choice([500, 2_500])
                    receiver = rng.choice(others)
                    yield RelocateGroups(family, chosen, processor.processor, receiver, size, "of chance", pace)
                waiting = tuple(group for group in groups if rng.random() < 0.3)
                if self.waits and waiting and rng.random() < 0.5:
                    yield HoldGroups(processor.processor, family, waiting, "chance would have it")


@dataclass(frozen=True)
class ChanceDiffusion:
    """After every step, diffuse some groups of every join that can be, over some processors; gather some others. Now
    and then a join is set apart for that from those that it runs fused with."""

    seed: int

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        rng = random.Random(f"{self.seed} {snapshot.step} diffusion")
        processors = range(len(snapshot.processors))
        for number in snapshot.plan.diffusable if len(processors) > 1 else ():
            before = {group for group, _ in snapshot.routings[number].diffused}
            active = {
                group
                for seen in (view.operators[number] for view in snapshot.processors)
                for group in seen.statistics.groups.tolist()
            }
            share = rng.choice([0.2, 0.2, 1.0]) if number in snapshot.parted else 0.2
            gathered = tuple(group for group in sorted(before) if rng.random() < share)
            if gathered:
                to = rng.choice([None, *processors])
                yield GatherGroups(number, gathered, to, "chance would have it")
            for group in sorted(active | before):
                if group not in gathered and rng.random() < rng.choice([0.1, 0.5]):
                    yield self._diffused(rng, snapshot, number, group)

        if snapshot.plan.partable and len(processors) > 1 and rng.random() < 0.3:
            number = rng.choice(snapshot.plan.partable)
            chosen = rng.sample(range(snapshot.plan.groups), rng.randrange(1, min(4, snapshot.plan.groups) + 1))
            diffused = tuple(self._diffused(rng, snapshot, number, group) for group in chosen)
            yield PartOperator(number, snapshot.plan.operators[number].name, diffused, "chance would have it")

    def _diffused(self, rng: random.Random, snapshot: Snapshot, number: int, group: int) -> DiffuseGroups:
        hosts = rng.sample(range(len(snapshot.processors)), rng.randrange(2, len(snapshot.processors) + 1))
        weights = tuple(rng.choice([1.0, 1.0, 0.01, 3.0]) for _ in hosts)
        master = rng.randrange(len(snapshot.plan.operators[number].ports))
        return DiffuseGroups(number, (group,), master, tuple(hosts), weights, "chance would have it")


@dataclass(frozen=True)
class ChanceWishes:
    """After some steps, wish what is begun later, when it may have become impossible: that operators go elsewhere, and
    that a query goes on in one of some `orders`. Sometimes that nobody knows the query, or that no order is written so.
    """

    seed: int
    orders: tuple[str, ...] = ()

    def decide(self, snapshot: Snapshot) -> Iterator[ReallocateOperator | MigrateQuery]:
        rng = random.Random(f"{self.seed} {snapshot.step} wishes")
        for operator in snapshot.plan.operators:
            if rng.random() < 0.3:
                to = rng.randrange(len(snapshot.processors))
                yield ReallocateOperator(operator.number, operator.name, to, "chance would have it")
        if self.orders and rng.random() < 0.3:
            query = rng.choice(["query", "query", "query", "nobody"])
            joins = rng.choice([*self.orders, "multiway", "(A"])
            yield MigrateQuery(query, joins, "chance would have it")


@dataclass
class Counted:
    """A policy on processors for which a row or a result takes a second, or up to eight on those that are slow for a
    while, so that it sees reasons to adapt whatever the machine does. By the seed it is said who is slow when."""

    policy: Policy
    seed: int

    @property
    def spans_plans(self) -> bool:
        return getattr(self.policy, "spans_plans", False)

    @property
    def compares_orders(self) -> bool:
        return getattr(self.policy, "compares_orders", False)

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        views = []
        for view in snapshot.processors:
            rng = random.Random(f"{self.seed} {snapshot.step // 8} {view.processor} slow")
            pace = rng.choice([1.0, 1.0, 1.0, 8.0])
            operators = tuple(replace(one, cpu=pace * (one.rows + one.results)) for one in view.operators)
            seconds = 1.0 + sum(one.cpu for one in operators)
            views.append(replace(view, operators=operators, cpu=seconds, busy=seconds))
        yield from self.policy.decide(replace(snapshot, processors=tuple(views)))

    def tell(self, done: Sequence[Action]) -> Iterator[Sentence]:
        tell = getattr(self.policy, "tell", None)
        yield from () if tell is None else tell(done)
