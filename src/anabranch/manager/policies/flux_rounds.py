"""The rounds of Flux (paper 2, section 5.3): how long to collect before the next moves, and how not to thrash.

A round collects for delta and then moves. The next delta is as long as the moves took, so that at most half the time is
spent moving; half the last one when nothing moved; and never less than delta_min. Snapshots come between batches only:
a phase ends at the batch boundary nearest to its length, and a move phase, which lasts to the first snapshot in which
the processors involved have no move under way, takes one batch at least.

The paper leaves open how to find delta_min: too small a value halves throughput (figure 8). With a number the rounds
are the paper's. With none they tune themselves, by three rules with no unit but the batch:

- What is measured has to be more than noise. Loads vary from batch to batch, and now and then one takes very long. So
  utilisation is that of the median batch, a round takes `SAMPLE` batches at least, and a pair has to differ in `MOST`
  of them. While a pair would be considered but does not, the round goes on, and its last batches count. The first that
  goes back between two processors is one partition: maybe there was only a little too much moved before.
- delta_min is 2^k times that (`Damping`). A round *turns back* if something moves between two processors the other way
  than in one of the last `RECENT` rounds, or a group that moved in one of them moves again. Then k grows by one, up to
  `LONGEST`; `CALM` rounds in a row that do not turn back take one off again, and if that was too early it takes twice
  as many the next time, up to `PATIENT`. So where load changes for good rounds stay short, and where it comes and goes
  they become long enough to see its mean.
- A group that moved rests for `FIRST_REST` batches, and twice as long after each further move, up to `LAST_REST`.

What follows, for n batches, P processors, G groups and m partitions per pair and round, whatever the load does:

- Moves are at most m * floor(P/2) * n / 2, since a round with moves takes a batch to move and one or more to collect;
  and as long as k holds there is at most one round in 2^k + 1 batches.
- A group moves at most 1 + min(log2(LAST_REST / FIRST_REST), log2(1 + n / FIRST_REST)) + n / LAST_REST times.
- Rounds turn back at most min(LONGEST, log2(1 + n)) + n / (2 * CALM) times. Each adds one to k, unless it lasted
  2^LONGEST batches. Those that took k from 0 to where it ends lasted 1, 2, 4, ... batches or more, and each that was
  taken off again cost `CALM` rounds of 2 batches or more.

So with batches of b seconds moves per minute, on average over t minutes with n = 60 t / b, are at most

    min(m * floor(P/2) * n / 2,  G * (moves of a group in n batches)) / t
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.actions import RelocateGroups
from anabranch.manager.snapshot import Integers, Partitions, Snapshot

# Batches of a round of loads, at least.
SAMPLE = 4
# The share of the batches in which a pair has to differ.
MOST = 7 / 8
# Rounds in which a move is remembered.
RECENT = 8
# Rounds without turning back after which delta_min is halved, at least and at most.
CALM, PATIENT = 8, 64
# How often delta_min is doubled at most: then a batch in 65 is a move phase, and longer rounds would gain nothing.
LONGEST = 6
# Batches that a group rests after its first move, and at most.
FIRST_REST, LAST_REST = 8, 128

# A family and a group of it.
Partition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a round has collected: the last snapshot, the rows that had arrived `before` the round, and per batch that
    counts the share of its time that each processor was `busy`. All `batches` took so many `seconds`.

    Partitions in `resting` must not be moved. Processors must be `sure` to differ if the rounds tune themselves. Of two
    processors in `back` the second was the last to give something to the first.
    """

    snapshot: Snapshot
    before: Mapping[Partition, int]
    busy: tuple[Mapping[int, float], ...] = ()
    batches: int = 0
    seconds: float = 0.0
    sure: bool = False
    resting: frozenset[Partition] = frozenset()
    back: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def begin(cls, snapshot: Snapshot) -> Collected:
        """Begin a round after a snapshot."""
        return cls(snapshot, {key: count for view in snapshot.processors for key, count in _arrived(view.partitions())})

    def add(self, snapshot: Snapshot, most: int | None) -> Collected:
        """Add a batch; only the last `most` batches count."""
        busy = {view.processor: view.busy / max(snapshot.seconds, 1e-9) for view in snapshot.processors}
        counted = (*self.busy, busy) if most is None else (*self.busy, busy)[-most:]
        seconds = self.seconds + snapshot.seconds
        return replace(self, snapshot=snapshot, busy=counted, batches=self.batches + 1, seconds=seconds)

    def utilisation(self, processor: int) -> float:
        """U = 1 - idle/delta (paper 2, section 5.3), of the median batch."""
        return min(median(batch.get(processor, 0.0) for batch in self.busy), 1.0)

    def differ(self, donor: int, receiver: int, imbalance: float) -> bool:
        """Whether one processor is that many times busier than another, and not by chance."""
        apart = sum(batch.get(donor, 0.0) >= imbalance * batch.get(receiver, 0.0) for batch in self.busy)
        return not self.sure or apart >= MOST * len(self.busy)

    def most(self, donor: int, receiver: int, per_round: int) -> int:
        """How many partitions a processor gives to another at a time."""
        return 1 if (donor, receiver) in self.back else per_round

    def tuples(self, partitions: Partitions) -> Integers:
        """Np: what has arrived for each partition in the round. A count that went down was reset."""
        counts = ((count, self.before.get(key, 0)) for key, count in _arrived(partitions))
        return np.array([now - then if now >= then else now for now, then in counts], dtype=np.int64)

    def rests(self, partitions: Partitions) -> NDArray[np.bool_]:
        """Which partitions must not be moved."""
        return np.array([key in self.resting for key, _ in _arrived(partitions)], dtype=bool)


def _arrived(partitions: Partitions) -> Iterator[tuple[Partition, int]]:
    return zip(
        zip(partitions.family.tolist(), partitions.group.tolist(), strict=True),
        partitions.arrived.tolist(),
        strict=True,
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """When a partition moved, and for how many batches from then it rests."""

    round: int
    batch: int
    rest: int


@dataclass(frozen=True, slots=True)
class Damping:
    """The memory of moves that keeps load from going to and fro; delta_min is 2^`doublings` batches.

    `calm` rounds in a row did not turn back; after `patience` of them delta_min is halved, and `relaxed` says that this
    was the last that became of it. `flows` are the last rounds in which something moved from one processor to another.
    """

    doublings: int = 0
    calm: int = 0
    patience: int = CALM
    relaxed: bool = False
    round: int = 0
    flows: Mapping[tuple[int, int], int] = field(default_factory=dict)
    moved: Mapping[Partition, Moved] = field(default_factory=dict)

    def resting(self, batch: int) -> frozenset[Partition]:
        """The partitions that must not move yet."""
        return frozenset(key for key, moved in self.moved.items() if batch - moved.batch < moved.rest)

    def turns_back(self, move: RelocateGroups) -> bool:
        """Whether a move of this round takes load to where it came from not long ago."""
        rounds = [self.flows.get((move.receiver, move.sender))]
        rounds += [moved.round for key in partitions_of(move) if (moved := self.moved.get(key)) is not None]
        return any(number is not None and self.round - number < RECENT for number in rounds)

    @property
    def back(self) -> frozenset[tuple[int, int]]:
        """The pairs between which the last move, not long ago, was from the second to the first."""
        return frozenset(
            (receiver, sender)
            for (sender, receiver), number in self.flows.items()
            if self.round - number < RECENT and number > self.flows.get((receiver, sender), -1)
        )

    def after(self, moves: Sequence[RelocateGroups], batch: int) -> Damping:
        """The damping after a round with these moves."""
        tuned = self._longer() if any(map(self.turns_back, moves)) else self._calmer()
        return replace(
            tuned,
            round=self.round + 1,
            flows={**self.flows, **{(move.sender, move.receiver): self.round for move in moves}},
            moved={**self.moved, **{key: self._rest(key, batch) for move in moves for key in partitions_of(move)}},
        )

    def _longer(self) -> Damping:
        patience = min(2 * self.patience, PATIENT) if self.relaxed else self.patience
        return replace(self, doublings=min(self.doublings + 1, LONGEST), calm=0, patience=patience, relaxed=False)

    def _calmer(self) -> Damping:
        if self.calm + 1 < self.patience:
            return replace(self, calm=self.calm + 1)
        if self.doublings == 0:
            return replace(self, calm=0, patience=CALM, relaxed=False)
        return replace(self, doublings=self.doublings - 1, calm=0, relaxed=True)

    def _rest(self, key: Partition, batch: int) -> Moved:
        last = self.moved.get(key)
        return Moved(self.round, batch, FIRST_REST if last is None else min(2 * last.rest, LAST_REST))


def partitions_of(move: RelocateGroups) -> list[Partition]:
    """The partitions that a move takes along."""
    return [(move.family, group) for group in move.groups]


@dataclass(slots=True)
class FluxRounds:
    """The rounds of a Flux policy, and how far it is in the current one.

    `minimum` is delta_min in seconds; None lets it tune itself, from `sample` batches on.
    """

    minimum: float | None = None
    sample: int = SAMPLE
    damping: Damping = field(default_factory=Damping)
    _delta: float = 0.0
    _batch: int = 0
    _collected: Collected | None = None
    _decided: float = 0.0
    _moving: frozenset[int] = frozenset()

    def follow(
        self, snapshot: Snapshot, choose: Callable[[Collected], list[RelocateGroups] | None]
    ) -> Iterator[RelocateGroups]:
        """Yield the moves that `choose` returns, if the collection phase ends with this snapshot.

        If `choose` returns None it is not sure yet, and the round goes on.
        """
        self._batch += 1
        if self._moving:
            self._end_moves(snapshot)
        elif self._collected is None:
            self._collected = Collected.begin(snapshot)
        else:
            self._collected = self._collected.add(snapshot, self._sampled)
            if self._is_over(self._collected):
                return iter(self._end_round(self._collected, choose))
        return iter(())

    def _end_moves(self, snapshot: Snapshot) -> None:
        if any(view.moves for view in snapshot.processors if view.processor in self._moving):
            return
        self._delta = snapshot.time - self._decided
        self._moving = frozenset()
        self._collected = Collected.begin(snapshot)

    def _is_over(self, collected: Collected) -> bool:
        if collected.seconds <= 0:
            return False
        nearest = collected.seconds + collected.seconds / collected.batches / 2
        enough = collected.seconds >= (self.minimum or 0) and collected.batches >= (self._sampled or 0)
        return enough and nearest >= self._delta

    def _end_round(
        self, collected: Collected, choose: Callable[[Collected], list[RelocateGroups] | None]
    ) -> list[RelocateGroups]:
        tuned = self.minimum is None
        if tuned:
            resting, back = self.damping.resting(self._batch), self.damping.back
            collected = replace(collected, resting=resting, back=back, sure=self.sample > 1)
        moves = choose(collected)
        if moves is None:
            return []
        if tuned:
            self.damping = self.damping.after(moves, self._batch)
        self._decided = collected.snapshot.time
        self._moving = frozenset(processor for move in moves for processor in (move.sender, move.receiver))
        if not moves:
            self._delta /= 2
            self._collected = Collected.begin(collected.snapshot)
        return moves

    @property
    def _sampled(self) -> int | None:
        """How many batches a round takes that tunes itself."""
        return self.sample * 2**self.damping.doublings if self.minimum is None else None
