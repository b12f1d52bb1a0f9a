"""A small model of a cluster that does what `ab.Adaptive` decides: groups with rates, processors with speeds.

A batch brings each group so many rows; a row takes a processor `1 / speed` seconds, and has 10 bytes that stay. What a
policy decides after a batch is so in the next. Rows of groups that are held wait. An order of joins makes every row
cost as much as `orders` says; to migrate may be refused. The join may be `fused` with one that has nothing to do; to
set it apart takes `round_seconds` of every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.manager.actions import (
    Action,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    MigrateQuery,
    PartOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.snapshot import ProcessorView
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.plan.routing import Everywhere, Routing, Spread
from tests.manager.snapshots import operator, processor, snapshot, statistics

ROW_BYTES = 10
FIXED = 0.01


@dataclass
class Model:
    """The cluster; `log` is what was done, by batch, and `told` what events say."""

    policy: Adaptive
    owners: list[int]
    speeds: list[float]
    rates: list[int]
    memory: list[int] | None = None
    orders: dict[str, float] = field(default_factory=lambda: {"A B": 1.0})
    order: str = "A B"
    keeps: int = 20
    batch: int = 0
    time: float = 0.0
    arrived: list[int] = field(default_factory=list)
    state: list[list[int]] = field(default_factory=list)
    on_disk: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    held: frozenset[int] = frozenset()
    hosts: dict[int, DiffuseGroups] = field(default_factory=dict)
    evaluations: int | None = None
    refuses: bool = False
    fused: bool = False
    round_seconds: float = 0.0
    refused: frozenset[str] = frozenset()
    longest: list[float] = field(default_factory=list)
    log: list[tuple[int, Action]] = field(default_factory=list)
    told: list[tuple[int, Sentence]] = field(default_factory=list)

    def __post_init__(self) -> None:
        groups = len(self.owners)
        self.arrived, self.on_disk, self.waiting = [0] * groups, [0] * groups, [0] * groups
        self.state = [[] for _ in range(groups)]

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.step()

    def step(self) -> None:
        """A batch, and what is decided after it."""
        self.batch += 1
        worked = [0.0] * len(self.speeds)
        came = [0] * len(self.owners)
        for group, rate in enumerate(self.rates):
            rows = rate + self.waiting[group]
            self.waiting[group] = rows if group in self.held else 0
            came[group] = 0 if group in self.held else rows
            self.arrived[group] += came[group]
            self.state[group] = [*self.state[group], came[group] * ROW_BYTES][-self.keeps :]
            for p, share in self.shares(group).items():
                worked[p] += share * came[group]
        cost = self.orders[self.order]
        round_seconds = self.round_seconds if self.fused and self.hosts else 0.0
        busy = [FIXED + round_seconds + cost * rows / speed for rows, speed in zip(worked, self.speeds, strict=True)]
        seconds = max(busy)
        self.longest.append(seconds)
        self.time += seconds
        shown = snapshot(
            *(self.view(p, busy[p], worked[p]) for p in range(len(self.speeds))),
            at=self.time,
            step=self.batch,
            seconds=seconds,
            plan=self.plan(),
            arrived=sum(self.rates),
            usual=float(sum(self.rates)),
            orders=self.measured(seconds),
            routings=(self.routing(), Routing(tuple(self.owners))),
            parted=frozenset({0} if self.hosts else ()),
            round_seconds=self.round_seconds,
        )
        decided = list(self.policy.decide(shown))
        for action in decided:
            self.carry_out(action)
        self.held = frozenset(g for action in decided if isinstance(action, HoldGroups) for g in action.groups)
        self.told += [(self.batch, sentence) for sentence in self.policy.tell(decided)]

    def carry_out(self, action: Action) -> None:
        self.log.append((self.batch, action))
        match action:
            case RelocateGroups():
                for group in action.groups:
                    assert self.owners[group] == action.sender
                    self.owners[group] = action.receiver
            case SpillGroups():
                for group in action.groups:
                    self.on_disk[group] += sum(self.state[group])
                    self.state[group] = []
            case MigrateQuery() if self.refuses:
                self.refused |= {action.joins}
            case MigrateQuery():
                self.order, self.evaluations = action.joins, 0
            case PartOperator():
                assert self.fused
                assert not self.hosts
                for diffusion in action.diffusions:
                    self.hosts |= dict.fromkeys(diffusion.groups, diffusion)
            case DiffuseGroups():
                assert self.hosts or not self.fused
                self.hosts |= dict.fromkeys(action.groups, action)
            case GatherGroups():
                for group in action.groups:
                    self.owners[group] = self.owners[group] if action.to is None else action.to
                    del self.hosts[group]

    def shares(self, group: int) -> Mapping[int, float]:
        """The part of a group's rows that each processor works on; a fifth are those of the stream that is copied."""
        if group not in self.hosts:
            return {self.owners[group]: 1.0}
        action = self.hosts[group]
        return {
            host: 0.8 * weight / sum(action.weights) + 0.2
            for host, weight in zip(action.hosts, action.weights, strict=True)
        }

    def view(self, p: int, busy: float, worked: float) -> ProcessorView:
        own = [group for group, owner in enumerate(self.owners) if owner == p]
        known = statistics(
            {group: sum(self.state[group]) for group in own},
            arrivals=(
                {group: self.arrived[group] * 4 // 5 for group in own},
                {group: self.arrived[group] - self.arrived[group] * 4 // 5 for group in own},
            ),
        )
        seen = operator(
            known,
            spilled=[group for group in own if self.on_disk[group]],
            diffused=[group for group in own if group in self.hosts],
            held={group: self.waiting[group] for group in own if self.waiting[group]},
            rows=round(worked),
            cpu=busy - FIXED - (self.round_seconds if self.fused and self.hosts else 0.0),
        )
        return processor(
            p,
            seen,
            operator([], number=1),
            memory=None if self.memory is None else self.memory[p],
            cpu=busy,
            busy=busy,
            rows=round(worked),
            spilled_bytes=sum(self.on_disk[group] for group in own),
            held_bytes=ROW_BYTES * sum(self.waiting[group] for group in own),
        )

    def plan(self) -> PlanShape:
        edges = (Edge("A", (), ("k",)), Edge("B", (), ("k",)))
        below = OperatorShape(0, f"join of {self.order}", (0, 1), edges=edges)
        family = 0 if self.fused and not self.hosts else 1
        above = OperatorShape(1, "join of C", (2, 3), family=family, edges=(Edge("C", ()), Edge(None, (0,))))
        return PlanShape((below, above), len(self.owners))

    def routing(self) -> Routing:
        routing = Routing(tuple(self.owners))
        for group, action in self.hosts.items():
            spread, everywhere = Spread(action.hosts, action.weights), Everywhere(action.hosts)
            routes = (spread, everywhere) if action.master == 0 else (everywhere, spread)
            routing = routing.diffuse([group], routes)
        return routing

    def measured(self, seconds: float) -> OrderCosts:
        rows = sum(self.rates) / seconds
        plans = tuple(
            PlanCost(joins, 0.0, 0.0, 1, cost * rows, 0.0, joins == self.order) for joins, cost in self.orders.items()
        )
        if self.evaluations is not None:
            self.evaluations += 1
        orders = QueryOrders(plans, refused=self.refused, evaluations=self.evaluations)
        return OrderCosts(self.batch, self.batch, self.time, 0.0, {"query": orders})

    def done(self, kind: type, first: int = 0) -> list[int]:
        """The batches after which an action of a kind was done."""
        return [batch for batch, action in self.log if isinstance(action, kind) and batch >= first]

    def events(self, kind: str) -> list[Sentence]:
        return [sentence for _, sentence in self.told if sentence.kind == kind]

    def bytes_at(self, p: int) -> int:
        """The active state of a processor."""
        return sum(sum(self.state[group]) for group, owner in enumerate(self.owners) if owner == p)


def even(groups: int, processors: int) -> list[int]:
    """Groups that are spread evenly."""
    return [group * processors // groups for group in range(groups)]
