"""Diffusion: spread the work of groups that no placement can balance over several processors (paper 4).

A group is *hot* if its work (`hot_groups`) is more than a processor's fair share, that is the work of all groups by the
number of processors: wherever such a group is, that processor is the busiest. How many hosts it gets, which ones and
with which weights is found in `hot_groups/spreading`, by predicting what every processor would have to do.

The master is the port at which most rows arrive. The paper's overhead is the rows that are received more than once,
(k - 1) * r for k hosts and rows of the other stream at a rate of r, so the stream that is not replicated has to be the
faster one. (The paper's sentence that follows says the opposite.) Of m inputs one is the master, and the m - 1 others
are replicated.

Decisions are taken by means over `period` steps, and nothing goes to and fro:

- Groups are spread only if the busiest processor is to have less to do by the factor `hysteresis`. A spread group gets
  another master only if that one's rows are more by this factor, other hosts or weights only if the busiest processor
  gains as much, and it is gathered only if its work is less than a fair share by this factor.
- A group stays as it is for `FIRST_REST` steps after it was diffused, and twice as long after each further change, up
  to `LAST_REST`. What is gathered may be diffused again at once: being diffused in vain costs little, being hot much.
  So in n steps a group is gathered, or changed while it is diffused, at most
  log2(1 + n / FIRST_REST) + n / LAST_REST times, and diffused at most once more than gathered.

A join that runs fused with others has to be set apart from them first, which costs every batch a round
(`hot_groups/partings`). So its hot groups are looked at after all others, and together: they are diffused if the
busiest processor has less to do by the factor `hysteresis` even with the time of the round, as the run has measured it.
Of several such joins the one that gains most is set apart; those that it was fused with may run by themselves then.

Changes that somebody else has made count like its own. A group that cannot be diffused now, since some of its state is
on disk, on its way or held back, is left alone, and so are groups of operators that can never be.

Work is told by CPU time, not by how long a task took: a processor that shares its machine with others does not seem
slower by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from anabranch.errors import ConfigError
from anabranch.manager.actions import DiffuseGroups, GatherGroups, PartOperator
from anabranch.manager.diffusable import port_name
from anabranch.manager.policies.arguments import is_number
from anabranch.manager.policies.hot_groups.loads import Loads, loads_of, with_master
from anabranch.manager.policies.hot_groups.partings import FIRST_REST, LAST_REST, Partings
from anabranch.manager.policies.hot_groups.spreading import Hosts, HotGroup, spread_out
from anabranch.manager.policies.hot_groups.work import GroupWork, Work
from anabranch.manager.snapshot import Floats, Snapshot
from anabranch.plan.routing import Diffused

# An operator's name, and a group of it.
Group = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """How a group was diffused last, None if it was gathered; since which step, and how long it stays so."""

    routes: tuple[Diffused, ...] | None
    since: int
    rest: int


@dataclass(slots=True)
class Diffusion:
    """Spread groups that are more than a processor's fair share over several processors.

    Args:
        period: over how many batches rows and work are counted before anything is decided (the paper's sampling
            period).
        hosts: over how many processors a group is spread at most; None for as many as pay.
        hysteresis: the factor by which something has to be better before it is done, from 1 on.
    """

    period: int = 4
    hosts: int | None = None
    hysteresis: float = 1.2
    _work: GroupWork = field(init=False, repr=False, compare=False)
    _kept: dict[Group, Kept] = field(default_factory=dict, init=False, repr=False, compare=False)
    _partings: Partings = field(default_factory=Partings, init=False, repr=False, compare=False)
    _batch: int = field(default=0, init=False, repr=False, compare=False)
    _wished: int = field(default=-LAST_REST, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        for name, value, least in (("period", self.period, 1), ("hosts", self.hosts, 2)):
            if value is None and name == "hosts":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} is a whole number from {least} on, not {value!r}")
        if not is_number(self.hysteresis) or not 1 <= self.hysteresis < float("inf"):
            raise ConfigError(
                f"hysteresis says how many times better something must be, from 1 on, not {self.hysteresis!r}"
            )
        self._work = GroupWork(self.period)

    @property
    def spans_plans(self) -> bool:
        """It goes on when another plan comes into force."""
        return True

    def decide(self, snapshot: Snapshot) -> Iterator[DiffuseGroups | GatherGroups | PartOperator]:
        """Yield what is to be diffused, changed and gathered, or else which operator is to be set apart for that."""
        self._batch += snapshot.arrived > 0
        self._notice(snapshot)
        self._partings.notice(snapshot, self._batch)
        work = self._work.add(snapshot)
        if work is None or snapshot.arrived == 0 or len(snapshot.processors) < 2:
            return
        loads = loads_of(snapshot, work)
        actions = list(self._change(snapshot, work, loads))
        actions = self._partings.without_rejoining(actions, snapshot, self._batch)
        yield from actions
        waits = bool(snapshot.reallocating) or self._batch - self._wished <= self.period
        if loads.fused and not actions and not waits:
            yield from self._part(snapshot, work, loads)

    def _change(self, snapshot: Snapshot, work: Work, loads: Loads) -> Iterator[DiffuseGroups | GatherGroups]:
        """Diffuse, change and gather groups of operators that run by themselves."""
        free = {hot: hosts for hot, hosts in loads.diffused.items() if self._may_change(snapshot, hot)}
        cold = [hot for hot in free if hot.work * self.hysteresis < loads.fair]
        for hot in cold:
            reason = f"its work is {hot.work / max(loads.fair, 1e-12):.0%} of a processor's fair share"
            yield GatherGroups(hot.operator, (hot.group,), None, reason)
        yield from self._spread(snapshot, work, loads, {hot: free[hot] for hot in free if hot not in cold})

    def _spread(
        self, snapshot: Snapshot, work: Work, loads: Loads, free: Mapping[HotGroup, Hosts]
    ) -> Iterator[DiffuseGroups | GatherGroups]:
        """Diffuse what is hot, and change what is diffused and `free` to be changed where that is better."""
        now = {with_master(work, hot, self._master(work, hot)): (hot, hosts) for hot, hosts in free.items()}
        now |= {hot: (hot, Hosts((hot.home,), (1.0,))) for hot in loads.hot}
        if not now:
            return
        processors = len(loads.cluster.loads)
        most = processors if self.hosts is None else min(self.hosts, processors)
        after, chosen = spread_out(loads.without(dict(now.values())), list(now), most)
        for hot, (before, hosts) in now.items():
            involved = {*hosts.processors, *chosen[hot].processors}
            load, expected = loads.cluster.busiest(involved), after.busiest(involved)
            pays = work.step + load > self.hysteresis * (work.step + expected)
            reason = Reason(snapshot, work, loads, before, load, expected)
            if len(chosen[hot].processors) < 2:
                if before in free and pays:
                    yield GatherGroups(hot.operator, (hot.group,), None, reason.gathered())
            elif pays or hot.master != before.master:
                yield reason.diffused(hot, chosen[hot])

    def _part(self, snapshot: Snapshot, work: Work, loads: Loads) -> Iterator[PartOperator]:
        """Set the operator apart that gains most by being diffused, if one gains more than a round costs."""
        most = len(loads.cluster.loads) if self.hosts is None else min(self.hosts, len(loads.cluster.loads))
        best: tuple[float, PartOperator] | None = None
        for n in sorted({hot.operator for hot in loads.fused}):
            shape = snapshot.plan.operators[n]
            groups = [hot for hot in loads.fused if hot.operator == n]
            at_home = {hot: Hosts((hot.home,), (1.0,)) for hot in groups}
            after, chosen = spread_out(loads.without(at_home), groups, most)
            spread = {hot: hosts for hot, hosts in chosen.items() if len(hosts.processors) > 1}
            if not spread or not self._partings.has_rested(shape.name, self._batch):
                continue
            involved = {p for hosts in spread.values() for p in hosts.processors}
            costs = snapshot.round_seconds * (snapshot.plan.rounds(apart=n) - snapshot.plan.rounds())
            load, expected = loads.cluster.busiest(involved), after.busiest(involved) + costs
            pays = work.step + load > self.hysteresis * (work.step + expected)
            if pays and (best is None or load - expected > best[0]):
                reasons = [(Reason(snapshot, work, loads, hot, load, expected), hot) for hot in spread]
                diffusions = tuple(reason.diffused(hot, spread[hot]) for reason, hot in reasons)
                others = ", the ".join(snapshot.plan.operators[m].name for m in snapshot.plan.fused_with(n))
                text = f"{diffusions[0].reason}, with {1000 * costs:,.1f} ms for being apart from the {others}"
                best = load - expected, PartOperator(n, shape.name, diffusions, text)
        if best is not None:
            self._wished = self._batch
            yield best[1]

    def _master(self, work: Work, hot: HotGroup) -> int:
        """The master that a diffused group should have: the one that it has, unless another one's rows are more by
        far."""
        rows = work.operators[hot.operator].rows[hot.group]
        best = int(np.argmax(rows))
        return best if rows[best] > self.hysteresis * rows[hot.master] else hot.master

    def _notice(self, snapshot: Snapshot) -> None:
        """Note which groups were diffused, changed or gathered since the last step, by whomever."""
        names = [operator.name for operator in snapshot.plan.operators]
        routes = {
            (name, group): routes
            for name, routing in zip(names, snapshot.routings, strict=False)
            for group, routes in routing.diffused
        }
        for group in {*routes, *self._kept}:
            now, before = routes.get(group), self._kept.get(group)
            if before is None:
                self._kept[group] = Kept(now, self._batch, FIRST_REST)
            elif now != before.routes:
                rest = before.rest if now is None else min(2 * before.rest, LAST_REST)
                self._kept[group] = Kept(now, self._batch, rest)

    def _may_change(self, snapshot: Snapshot, hot: HotGroup) -> bool:
        """Whether a diffused group has rested long enough."""
        kept = self._kept[snapshot.plan.operators[hot.operator].name, hot.group]
        return self._batch - kept.since >= kept.rest


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a group is diffused, for people: the highest load of processors that have to do with it, now and then."""

    snapshot: Snapshot
    work: Work
    loads: Loads
    before: HotGroup
    load: float
    expected: float

    def diffused(self, hot: HotGroup, hosts: Hosts) -> DiffuseGroups:
        """The action that diffuses it over hosts."""
        rows = self.work.operators[hot.operator].rows[hot.group]
        copies = (len(hosts.processors) - 1) * float(rows.sum() - rows[hot.master])
        weights = tuple(round(part, 3) for part in hosts.parts)
        text = f"{self._change(hot, rows)}; expected then: {self._then()}, and {copies:,.0f} rows more a batch received"
        return DiffuseGroups(hot.operator, (hot.group,), hot.master, hosts.processors, weights, text, copies)

    def gathered(self) -> str:
        """Why it is better at one processor."""
        return f"being diffused does not pay any more; expected then: {self._then()}"

    def _change(self, hot: HotGroup, rows: Floats) -> str:
        """What is new."""
        if hot.master != self.before.master:
            plan = self.snapshot.plan
            now, then = (port_name(plan, hot.operator, port) for port in (hot.master, self.before.master))
            return (
                f"{rows[hot.master]:,.0f} rows of {now} come in a batch, and {rows[self.before.master]:,.0f} of {then}"
            )
        share = hot.work / max(self.loads.fair, 1e-12)
        return f"its work, {1000 * hot.work:,.1f} ms a batch, is {share:.1f} times a processor's fair share"

    def _then(self) -> str:
        return f"{1000 * self.expected:,.1f} ms instead of {1000 * self.load:,.1f} for the busiest processor"
