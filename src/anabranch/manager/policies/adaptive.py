"""Adaptive: everything the engine can do to a running query, with nothing to be said about when and how.

Policies of all papers propose; each proposal is estimated in seconds of batch time (`estimates`), and the arbiter takes
the best that do not conflict, follows what comes of them, and believes those less that were wrong (`arbitration`).

A policy remembers what it has decided on, such as when groups last moved. If what it proposes has to wait for another
adaptation, it is set back to what it was before, and proposes it again with the next snapshot. If it is not worth it,
the policy goes on as if it had been done, and takes its time before it comes back to it.

It goes on when another plan comes into force, with what is under way and with how far predictions count. The policies
begin anew with each plan, unless they span plans themselves.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from anabranch.errors import ConfigError
from anabranch.manager.actions import Action
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.arbitration.arbiter import Arbiter, Verdict, applied
from anabranch.manager.arbitration.proposal import Proposal
from anabranch.manager.arbitration.workload import Workload, WorkloadTracker, plan_key
from anabranch.manager.estimates import Circumstances, estimate, touched_by
from anabranch.manager.policies.auto_migrate import AutoMigrate
from anabranch.manager.policies.balance import Balance
from anabranch.manager.policies.diffusion import Diffusion
from anabranch.manager.policies.flux import FluxLoad, FluxMemory
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.skew_buffer import SkewBuffer
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Policy, Snapshot

# By kind of adaptation, who proposes it. How often things move is up to the arbiter, and how much at a time to what it
# is estimated to gain. Spilling is proposed besides relocation, not instead. For memory lazy-disk proposes the most
# productive groups of who has the most, and Flux the largest ones of who lacks the most.
PROPOSERS: dict[str, tuple[Callable[[], Policy], ...]] = {
    "spill": (Spill,),
    "relocation": (lambda: LazyDisk(span="1 second", spill=Spill(push=0)), lambda: FluxMemory(per_round=16)),
    "load_balancing": (lambda: FluxLoad(per_round=16),),
    "skew_buffer": (SkewBuffer,),
    "diffusion": (Diffusion,),
    "migration": (AutoMigrate,),
    "reallocation": (Balance,),
}
# What remembers what it has seen rather than what it has decided is never set back.
OBSERVERS = ("skew_buffer", "diffusion")


@dataclass(slots=True)
class Proposer:
    """A policy that proposes one kind of adaptation, made anew by `make`; `before` is what it was before the last
    snapshot."""

    kind: str
    make: Callable[[], Policy]
    policy: Policy
    before: Policy | None = None

    def propose(self, circumstances: Circumstances) -> list[Proposal]:
        """What the policy decides, by the processors that it touches."""
        self.before = None if self.kind in OBSERVERS else copied(self.policy)
        together: dict[tuple[str, frozenset[int]], list[Action]] = {}
        for action in self.policy.decide(circumstances.snapshot):
            touched = touched_by(action, circumstances.snapshot)
            together.setdefault((type(action).__name__, touched), []).append(action)
        return [
            Proposal(self.kind, tuple(actions), touched, estimate(actions, circumstances))
            for (_, touched), actions in together.items()
        ]

    def set_back(self) -> None:
        """Forget the last snapshot, and what was proposed for it."""
        if self.before is not None:
            self.policy = self.before


def copied(value: Any) -> Any:
    """A copy of what a policy remembers. Values that cannot change, such as snapshots, are shared."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, deque):
        return deque(map(copied, value), value.maxlen)
    if isinstance(value, list | set):
        return type(value)(map(copied, value))
    if not is_dataclass(value) or getattr(value, "__dataclass_params__").frozen:  # noqa: B009, mypy does not know it
        return value
    twin = copy.copy(value)
    for entry in fields(value):
        setattr(twin, entry.name, copied(getattr(value, entry.name)))
    return twin


@dataclass(slots=True)
class Round:
    """The proposals for a snapshot that were taken."""

    snapshot: Snapshot
    workload: Workload
    taken: list[Proposal] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)


@dataclass(slots=True)
class Adaptive:
    """Do whatever makes batches take less time, and keep to the memory that there is.

    Args:
        spill: push partition groups to disk when a processor is over its memory.
        relocation: move groups to where memory is left.
        load_balancing: move groups from busy processors to idle ones.
        skew_buffer: let rows of a processor wait that is late for a moment.
        diffusion: spread groups over several processors that are too much for one.
        migration: go on with another order of joins.
        reallocation: move operators that are whole on one processor.
        dry_run: only tell, by events, what would be done.
    """

    spill: bool = True
    relocation: bool = True
    load_balancing: bool = True
    skew_buffer: bool = True
    diffusion: bool = True
    migration: bool = True
    reallocation: bool = True
    dry_run: bool = False
    _tracker: WorkloadTracker = field(default_factory=WorkloadTracker, init=False, repr=False, compare=False)
    _arbiter: Arbiter = field(default_factory=Arbiter, init=False, repr=False, compare=False)
    _proposers: list[Proposer] = field(default_factory=list, init=False, repr=False, compare=False)
    _plan: object = field(default=None, init=False, repr=False, compare=False)
    _round: Round | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        for name in (entry.name for entry in fields(self) if entry.init):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is True or False, not {getattr(self, name)!r}")
        self._arbiter = Arbiter(self.dry_run)
        self._proposers = [
            Proposer(kind, make, make()) for kind, makers in PROPOSERS.items() if getattr(self, kind) for make in makers
        ]

    @property
    def spans_plans(self) -> bool:
        """It goes on when another plan comes into force."""
        return True

    @property
    def compares_orders(self) -> bool:
        """Whether what orders of joins cost has to be measured for this."""
        return self.migration

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        """Yield the actions of the best proposals."""
        self._round = None
        self._follow_plan(snapshot)
        workload = self._tracker.follow(snapshot)
        if workload is None:
            return iter(())
        self._round = Round(snapshot, workload, sentences=self._arbiter.look(snapshot, workload))
        circumstances = Circumstances(snapshot, workload)
        proposals = [(proposer, one) for proposer in self._proposers for one in proposer.propose(circumstances)]
        verdicts = self._arbiter.judge([one for _, one in proposals], snapshot, workload)
        for proposer, own in self._by_proposer(proposals, verdicts):
            if Verdict.WAITS in own and Verdict.TAKEN not in own:
                proposer.set_back()
        pairs = zip(proposals, verdicts, strict=True)
        self._round.taken = [one for (_, one), verdict in pairs if verdict is Verdict.TAKEN]
        return iter(() if self.dry_run else [action for one in self._round.taken for action in one.actions])

    def tell(self, done: Sequence[Action]) -> Iterator[Sentence]:
        """What events are to say, now that some of the actions are `done`; the others had to wait after all."""
        if self._round is None:
            return
        ended, self._round = self._round, None
        yield from ended.sentences
        own = [one for one in ended.taken if self.dry_run or applied(one, done)]
        yield from self._arbiter.note(own, ended.snapshot, ended.workload)
        waiting = {one.kind for one in ended.taken} - {one.kind for one in own}
        for proposer in self._proposers:
            if proposer.kind in waiting:
                proposer.set_back()

    def _follow_plan(self, snapshot: Snapshot) -> None:
        """Begin anew with policies that do not span plans when another plan is in force."""
        before, self._plan = self._plan, plan_key(snapshot)
        if before not in (None, self._plan):
            self._proposers = [
                one if getattr(one.policy, "spans_plans", False) else Proposer(one.kind, one.make, one.make())
                for one in self._proposers
            ]

    def _by_proposer(
        self, proposals: Sequence[tuple[Proposer, Proposal]], verdicts: Sequence[Verdict]
    ) -> Iterator[tuple[Proposer, list[Verdict]]]:
        for proposer in self._proposers:
            yield proposer, [v for (who, _), v in zip(proposals, verdicts, strict=True) if who is proposer]
