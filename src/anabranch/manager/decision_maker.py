"""The decision maker (paper 5, section 4.3): let policies look at a run between two batches, and carry out what they
decide.

Everything here is an edit of manifests and placements, made by the driver before it commits a step. All policies look
at the same state, so a processor that has a part in what one has decided is left alone by those after it: it does not
spill and relocate at the same time, and no two policies move its groups. What was decided first is done, and the other
may be decided again after the next step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from anabranch.errors import ConfigError
from anabranch.manager.actions import ACTIONS, Action
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.actions.relocate_groups import note_relocations
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.allocation.properties import NO_PROPERTIES, Properties
from anabranch.manager.connection_manager import ConnectionManager
from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.policies.clean_up import CleanUpInPassing
from anabranch.manager.runtime_monitor import Moment, RuntimeMonitor
from anabranch.manager.snapshot import Policy, Snapshot
from anabranch.manager.tiers.clusters import Clusters
from anabranch.manager.tiers.within import crossing, within
from anabranch.state.groups import union_by_operator
from anabranch.state.report import Report
from anabranch.state.runs.run import FileCuts


class DecisionMaker:
    """Adapts a run between its steps, with the run's own copy of the policies."""

    def __init__(
        self,
        plan: PlanShape,
        state: Path,
        memory: MemoryBudgets,
        policies: Sequence[Policy],
        clock: Callable[[], float] = time.time,
        spanning: dict[int, Policy] | None = None,
        cuts: FileCuts | None = None,
        properties: Properties = NO_PROPERTIES,
        clusters: Clusters | None = None,
    ) -> None:
        """Nothing is done yet. Runs are found in the folder `state`.

        A policy begins anew with each plan, unless it has an attribute `spans_plans` that is true: the run's copy of
        such a one is kept in `spanning`, by its position. Where groups begin in files may be known already (`cuts`).
        With `clusters` of processors each of them has copies of all policies, which see that cluster alone.
        """
        self.plan = plan
        self._clock = clock
        self._clusters = clusters
        names: list[str | None] = [None] if clusters is None else [*clusters.named]
        copies = _own_copies([*policies] * len(names), {} if spanning is None else spanning)
        self._policies: list[tuple[str | None, Policy]] = [
            *zip([name for name in names for _ in policies], copies, strict=True),
            (None, CleanUpInPassing()),
        ]
        self.cuts = FileCuts(state, plan.groups) if cuts is None else cuts
        self._monitor = RuntimeMonitor(plan, memory, self.cuts, clock, properties)
        self.connections = ConnectionManager(plan, self.cuts, clock)

    def adapt(self, moment: Moment, distribution: Distribution, reports: Sequence[Report]) -> Change:
        """Change a distribution after a step: relocations under way go on, and actions of policies are applied.

        Where groups begin in new files is taken from the reports, so the files need not be read.
        """
        self._monitor.note_returned(moment.cleaned_up)
        for report in reports:
            self.cuts.learn_texts(report.cuts)
            report.cuts = {}
        self.cuts.forget_others({name for manifest in distribution.manifests for name in manifest.files()})
        change = Change(distribution)
        note_relocations(change, *self.connections.go_on(distribution), self.plan)
        context = self.context(moment.step, moment.since)
        snapshot = self._monitor.snapshot(moment, change.distribution, reports, change.parties)
        for cluster, policy in self._policies:
            taken, done = change.parties, list[Action]()
            for action in _decided(policy, self._shown(snapshot, cluster)):
                _check_is_action(action, policy)
                if not action.must_wait(change, taken):
                    _check_makes_sense(action, policy, change, context, self._clusters)
                    action.apply(change, context)
                    done.append(action)
            change.sentences += _told(policy, done)
        change.hold = union_by_operator(change.hold, self.connections.held_back(change.distribution))
        return change

    def snapshot(self, moment: Moment, distribution: Distribution) -> Snapshot:
        """The snapshot of the run between two steps."""
        sources = len(moment.settled)
        nothing = [Report.empty(p, sources, len(self.plan.operators), 0) for p in range(distribution.processors)]
        return self._monitor.snapshot(moment, distribution, nothing)

    @property
    def compares_orders(self) -> bool:
        """Whether a policy wants to know what other orders of joins would cost."""
        return any(getattr(policy, "compares_orders", False) for _, policy in self._policies)

    def _shown(self, snapshot: Snapshot, cluster: str | None) -> Snapshot:
        """What policies of a cluster see; those of no cluster see everything."""
        return snapshot if self._clusters is None or cluster is None else within(snapshot, self._clusters, cluster)

    def learn_cuts(self, texts: Mapping[str, str]) -> None:
        """Remember where partition groups begin in files that somebody has written."""
        self.cuts.learn_texts(texts)

    def context(self, step: int = 0, since: Sequence[int | None] = ()) -> Context:
        """The context of actions that are applied after a step, now."""
        return Context(self.plan, step, since, self._clock(), self.connections, self.cuts)


def _own_copies(policies: Sequence[Policy], spanning: dict[int, Policy]) -> list[Policy]:
    """The run's own copies of policies; of those that span plans always the same ones."""
    for position, policy in enumerate(policies):
        if getattr(policy, "spans_plans", False) and position not in spanning:
            spanning[position] = copy.deepcopy(policy)
    return [
        spanning[position] if position in spanning else copy.deepcopy(policy)
        for position, policy in enumerate(policies)
    ]


def _decided(policy: Policy, snapshot: Snapshot) -> Iterable[Action]:
    actions = policy.decide(snapshot)
    if not isinstance(actions, Iterable):
        raise ConfigError(
            f"the policy {policy!r} decided on {actions!r}; its decide() must return actions, or [] for none"
        )
    return actions


def _told(policy: Policy, done: Sequence[Action]) -> list[Sentence]:
    """What a policy has to tell, once some of its actions are done."""
    tell = getattr(policy, "tell", None)
    return [] if tell is None else list(tell(done))


def _check_is_action(action: Action, policy: Policy) -> None:
    if not isinstance(action, ACTIONS):
        raise ConfigError(f"the policy {policy!r} decided on {action!r}, which is no action")


def _check_makes_sense(
    action: Action, policy: Policy, change: Change, context: Context, clusters: Clusters | None
) -> None:
    """Refuse what a policy of a user's own may have got wrong."""
    problem = action.problem(change, context)
    if problem is None and clusters is not None:
        problem = crossing(action, clusters, change.distribution)
    if problem is not None:
        raise ConfigError(f"the policy {policy!r} decided on {action}: {problem}")
