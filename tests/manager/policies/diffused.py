"""A small model of processors that join, and that do what the policy `Diffusion` decides before the next batch.

A batch is, per partition group, rows by port and results. A processor that has all of a group works on all its rows; of
a diffused group each host works on its part of the master's rows and on all others, and gives its part of the results.
What takes CPU time is rows, results and the batch itself, times what the processor is slower than others. The join may
be fused with another one that has nothing to do; then it is set apart while groups of it are diffused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from anabranch.manager.actions import DiffuseGroups, GatherGroups, PartOperator
from anabranch.manager.diffusion import master_of, routes_of
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.manager.policies.diffusion import Diffusion
from anabranch.manager.policies.hot_groups.loads import hosts_of
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.placement import even_placement
from anabranch.plan.routing import Routing, Spread
from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics
from tests.manager.snapshots import operator, processor, snapshot

GROUPS = 16
ROW, RESULT, STEP = 2e-6, 1e-6, 0.001


class Batch(NamedTuple):
    """Rows of a batch by group and port, and its results by group."""

    rows: np.ndarray
    results: np.ndarray


def batch(hot: dict[int, Sequence[int]], cold: int = 100, ports: int = 2, results: float = 5.0) -> Batch:
    """Rows of hot groups by port, and so many of every other group at each port; and results per row."""
    rows = np.full((GROUPS, ports), float(cold))
    for group, counts in hot.items():
        rows[group] = counts
    return Batch(rows, results * rows.sum(axis=1))


def plan_of(ports: int = 2, operators: int = 1, fused: bool = False) -> PlanShape:
    """So many joins of so many streams called A, B, ...; all of them fused, or none with another. If there are several,
    each feeds the next one."""
    edges = tuple(Edge("ABCDEFGH"[port], (), ("k",)) for port in range(ports))
    shapes = [
        OperatorShape(
            n,
            f"join {n}",
            tuple(range(n * ports, (n + 1) * ports)),
            family=0 if fused else n,
            edges=edges if n == 0 else (Edge(None, (n - 1,), ("k",)), *edges[1:]),
        )
        for n in range(operators)
    ]
    return PlanShape(tuple(shapes), GROUPS)


@dataclass
class DiffusedCluster:
    """The model, with one join; `fused` with another one, from which it can be set apart for so many seconds a batch
    (`round_seconds`)."""

    policy: Diffusion
    processors: int = 4
    ports: int = 2
    slow: dict[int, float] = field(default_factory=dict)
    spilled: Sequence[int] = ()
    held: dict[int, int] = field(default_factory=dict)
    noise: float = 0.0
    fused: bool = False
    round_seconds: float = 0.0
    apart: bool = False
    parted: int = 0
    number: int = 0
    actions: list[tuple[int, DiffuseGroups | GatherGroups | PartOperator]] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Groups are placed evenly; nothing has come."""
        self.routing = Routing(even_placement(GROUPS, self.processors))
        self.arrivals = np.zeros((self.processors, GROUPS, self.ports))
        self.results = np.zeros((self.processors, GROUPS))
        self.random = np.random.default_rng(1)

    def run(self, batches: int, load: Callable[[int], Batch]) -> None:
        """Take so many batches, counted from 1, and do what the policy decides after each."""
        for _ in range(batches):
            self.number += 1
            seen = self.take(load(self.number))
            for action in self.policy.decide(seen):
                self.actions.append((self.number, action))
                self.carry_out(action)
            self.apart = self.apart and bool(self.routing.diffused)

    def take(self, came: Batch) -> Snapshot:
        """Work on a batch; the snapshot after it."""
        worked, gave = np.zeros(self.processors), np.zeros(self.processors)
        for group in range(GROUPS):
            routes = self.routing.routes(group)
            home = self.routing.placement[group]
            if routes is None:
                shares, spread = {home: 1.0}, set(range(self.ports))
            else:
                shares, spread = dict(zip(*_fields(hosts_of(routes)), strict=True)), {master_of(routes)}
            for p, share in shares.items():
                for port in range(self.ports):
                    own = came.rows[group, port] * (share if port in spread else 1.0)
                    worked[p] += own
                    if port in spread or p == home:
                        self.arrivals[p, group, port] += own
                gave[p] += came.results[group] * share
                self.results[p, group] += came.results[group] * share
        self.work = (worked + gave).tolist()
        self.rows = worked.round().astype(int).tolist()
        noise = 1 + self.noise * self.random.random(self.processors)
        slow = np.array([self.slow.get(p, 1.0) for p in range(self.processors)])
        cpu = (STEP + ROW * worked + RESULT * gave) * noise * slow
        return self.snapshot(cpu.tolist(), worked.tolist(), gave.tolist(), int(came.rows.sum()))

    def snapshot(self, cpu: list[float], worked: list[float], gave: list[float], arrived: int) -> Snapshot:
        """The cluster as policies see it."""
        views = []
        for p in range(self.processors):
            known = Statistics(
                np.arange(GROUPS),
                np.full(GROUPS, 10),
                self.results[p].round().astype(np.int64),
                self.results[p],
                np.full(GROUPS, 1.0),
                self.arrivals[p].round().astype(np.int64),
            )
            view = operator(known, rows=int(worked[p]), results=int(gave[p]), cpu=cpu[p])
            spilled = GroupSet.of(GROUPS, self.spilled) if self.spilled else None
            views.append(processor(p, replace(view, spilled=spilled, held=self.held), cpu=cpu[p], busy=cpu[p]))
        shown = {"step": self.number, "arrived": arrived, "routings": (self.routing,)}
        if not self.fused:
            return snapshot(*views, plan=plan_of(self.ports), **shown)
        idle = operator(Statistics(), number=1)
        views = [replace(view, operators=(*view.operators, idle)) for view in views]
        shown["routings"] = (self.routing, Routing(even_placement(GROUPS, self.processors)))
        parted, plan = frozenset({0} if self.apart else ()), plan_of(self.ports, 2, fused=not self.apart)
        return snapshot(*views, plan=plan, parted=parted, round_seconds=self.round_seconds, **shown)

    def carry_out(self, action: DiffuseGroups | GatherGroups | PartOperator) -> None:
        """Do it at once, as the manager does; but a join with nothing diffused is fused again by the next batch."""
        if isinstance(action, PartOperator):
            assert self.fused
            assert not self.apart
            self.apart, self.parted = True, self.parted + 1
            for diffusion in action.diffusions:
                self.carry_out(diffusion)
            return
        assert self.apart or not self.fused, "it has to be set apart first"
        if isinstance(action, GatherGroups):
            assert all(self.routing.routes(group) is not None for group in action.groups)
            self.routing = self.routing.gather(action.groups)
            return
        routes = routes_of(self.ports, action.master, action.hosts, action.weights)
        for group in action.groups:
            assert self.routing.routes(group) != routes, "nothing would change"
            if self.routing.placement[group] not in action.hosts:
                self.routing = self.routing.gather([group]).moved([group], action.hosts[0])
        self.routing = self.routing.diffuse(action.groups, routes)

    @property
    def busiest(self) -> float:
        """The most rows and results that a processor had in the last batch, by the mean."""
        return max(self.work) / (sum(self.work) / len(self.work))

    def hosts(self, group: int) -> tuple[int, ...]:
        """The processors that have a part in a group."""
        return self.routing.hosts(group)

    def master(self, group: int) -> int | None:
        """The master of a group; None if it is not diffused."""
        routes = self.routing.routes(group)
        return None if routes is None else master_of(routes)

    def weights(self, group: int) -> tuple[float, ...]:
        """The weights of a diffused group's hosts."""
        routes = self.routing.routes(group) or ()
        return next(route.weights for route in routes if isinstance(route, Spread))

    def entered(self) -> int:
        """How often anything was diffused or changed."""
        return sum(isinstance(action, DiffuseGroups) for _, action in self.actions)

    def left(self) -> int:
        """How often anything was gathered."""
        return sum(isinstance(action, GatherGroups) for _, action in self.actions)


def _fields(hosts: object) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return hosts.processors, hosts.parts  # type: ignore[attr-defined]
