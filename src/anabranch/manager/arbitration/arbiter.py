"""The arbiter: takes the best proposals that do not conflict, follows them, and learns what predictions are worth.

- Proposals are ranked by what is left of the gain, as far as its kind is trusted, after the costs. One that is not
  worth its costs, or would save less than `LEAST` of a batch, is not taken, unless it is pressing.
- A processor takes part in one adaptation at a time. It is left alone until the outcome of its last one is known
  (`record`), so outcomes do not mix. Only a push to disk that keeps a budget neither waits nor lets others wait, but in
  the same step: it is there at once, and what comes of it is told in bytes.
- Of two proposals that want the same processor the better one is waited for, if it has to wait.
- Rows are held back for one batch at a time. That goes on for as long as it pays, and has one outcome at its end.

So in n batches a processor takes part in no more than 1 + n / `WATCHED` adaptations, but for pushes, whatever policies
propose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch.manager.actions import Action, HoldGroups
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.arbitration.proposal import Proposal
from anabranch.manager.arbitration.record import Course, Outcome, Record
from anabranch.manager.arbitration.sentences import (
    decided_sentence,
    outcome_sentence,
    refused_sentence,
)
from anabranch.manager.arbitration.trust import Trust
from anabranch.manager.arbitration.workload import Workload
from anabranch.manager.snapshot import Snapshot

# The share of a batch that has to be saved for anything to be done.
LEAST = 0.05
# Batches that have to be known for loads to be compared.
KNOWN = 2


class Verdict(StrEnum):
    """What becomes of a proposal now."""

    TAKEN = "taken"
    WAITS = "waits"
    """Another adaptation of its processors comes first."""
    LEFT = "left"
    """It is not worth it."""


@dataclass(slots=True)
class Holding:
    """Rows of a processor that have been held back for some batches: what was predicted so far, and measured.

    It has `ended` when they are to go on; the batch in which they do counts as well.
    """

    proposal: Proposal
    step: int
    predicted: float = 0.0
    measured: float = 0.0
    ended: bool = False


@dataclass(slots=True)
class Arbiter:
    """Decides between proposals of all policies of a run, whatever plan is in force."""

    dry_run: bool = False
    trust: Trust = field(default_factory=Trust)
    records: list[Record] = field(default_factory=list)
    holdings: dict[int, Holding] = field(default_factory=dict)
    _batch: int = 0
    _processors: int = 0

    def look(self, snapshot: Snapshot, workload: Workload) -> list[Sentence]:
        """See what has come of what was decided before."""
        if len(snapshot.processors) != self._processors:
            self.records, self.holdings, self._processors = [], {}, len(snapshot.processors)
        sentences: list[Sentence] = []
        if snapshot.arrived > 0:
            self._batch += 1
            self.trust.recover()
            sentences += self._look_at_holdings(workload)
        kept = []
        for record in self.records:
            course = record.course(snapshot, self._batch)
            if course is Course.REFUSED:
                sentences.append(refused_sentence(record))
            elif not record.is_over(workload, self._batch):
                kept.append(record)
            elif not self.dry_run:
                sentences.append(self._learn(record, record.outcome(snapshot, workload)))
        self.records = kept
        return sentences

    def judge(self, proposals: Sequence[Proposal], snapshot: Snapshot, workload: Workload) -> list[Verdict]:
        """What becomes of proposals, in their order."""
        watched = {
            p for record in self.records if not _keeps_budget(record.proposal) for p in record.proposal.processors
        }
        watched |= {view.processor for view in snapshot.processors if view.moves}
        verdicts, taken, wanted = [Verdict.LEFT] * len(proposals), set[int](), set[int]()
        for nth in sorted(range(len(proposals)), key=lambda nth: (-self._net(proposals[nth]), proposals[nth].kind)):
            proposal = proposals[nth]
            if not self._is_worth(proposal, workload) or self._was_told(proposal):
                continue
            free = not proposal.processors & (taken if _keeps_budget(proposal) else wanted | watched)
            verdicts[nth] = Verdict.TAKEN if free else Verdict.WAITS
            taken |= proposal.processors if free else set()
            wanted |= proposal.processors
        return verdicts

    def note(self, taken: Iterable[Proposal], snapshot: Snapshot, workload: Workload) -> list[Sentence]:
        """Remember what was taken, and is done or wished; rows that were held back and are not now go on."""
        sentences, held = [], set[int]()
        for proposal in taken:
            if isinstance(proposal.actions[0], HoldGroups):
                [processor] = proposal.processors
                held.add(processor)
                if processor in self.holdings:
                    self.holdings[processor].proposal, self.holdings[processor].ended = proposal, False
                    continue
                self.holdings[processor] = Holding(proposal, snapshot.step)
            else:
                self.records.append(Record.of(proposal, snapshot, workload, self._batch))
            sentences.append(decided_sentence(proposal, self.trust.of(proposal.kind), dry_run=self.dry_run))
        for processor in self.holdings.keys() - held:
            self.holdings[processor].ended = True
        return sentences

    def _net(self, proposal: Proposal) -> float:
        return proposal.net(self.trust.of(proposal.kind))

    def _is_worth(self, proposal: Proposal, workload: Workload) -> bool:
        estimate = proposal.estimate
        if estimate.pressing:
            return True
        worth = self._net(proposal) > 0 and workload.batches >= KNOWN
        return worth and (estimate.once > 0 or estimate.per_batch >= LEAST * estimate.before)

    def _was_told(self, proposal: Proposal) -> bool:
        """Whether a dry run has told not long ago that something like it would be done."""
        told = ((record.proposal.kind, record.proposal.processors) for record in self.records)
        return self.dry_run and (proposal.kind, proposal.processors) in told

    def _look_at_holdings(self, workload: Workload) -> list[Sentence]:
        """Add up what batches have gained by holding rows back, and lost by letting them go on."""
        sentences = []
        for processor, holding in [*self.holdings.items()]:
            estimate = holding.proposal.estimate
            holding.measured += estimate.before - float(workload.last[processor])
            holding.predicted += 0.0 if holding.ended else estimate.per_batch
            if holding.ended:
                del self.holdings[processor]
                if not self.dry_run:
                    outcome = Outcome(holding.predicted, holding.measured, holding.predicted, holding.measured)
                    sentences.append(self._learned(holding.proposal, holding.step, outcome))
        return sentences

    def _learn(self, record: Record, outcome: Outcome) -> Sentence:
        return self._learned(record.proposal, record.step, outcome)

    def _learned(self, proposal: Proposal, step: int, outcome: Outcome) -> Sentence:
        trust = self.trust.learn(proposal.kind, outcome.gain, outcome.measured)
        return outcome_sentence(proposal, step, outcome, trust)


def _keeps_budget(proposal: Proposal) -> bool:
    """Whether it keeps a budget, by what its one processor can do by itself."""
    return proposal.estimate.pressing and len(proposal.processors) == 1


def applied(proposal: Proposal, done: Sequence[Action]) -> bool:
    """Whether anything of a proposal was done."""
    return any(action is one for action in proposal.actions for one in done)
