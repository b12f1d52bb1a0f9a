"""The seconds that a round more costs every batch, measured by what the run's own batches took.

A batch takes as long as its busiest processor works, and some time *beside* that: Spark plans it, shuffles rows and
starts tasks, once per round. If batches with other numbers of rounds are known, the difference of what they took beside
the work is what a round costs. Before, it is estimated: `BESIDE_ROUNDS` says how many times more than for a round goes
to what every batch needs however many rounds it has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

# Batches that are looked at, and how many of them must be known, for each number of rounds.
LOOKED_AT, KNOWN = 16, 4
# An empty batch with one shuffle and one Python stage took 0.75 to 0.92 s, and 0.59 s without (DESIGN, Known numbers).
BESIDE_ROUNDS = 3.0
# What a round is taken to cost before that can be said, since the first batches of a run take long.
UNKNOWN = 0.1


@dataclass(slots=True)
class RoundCost:
    """Measures batches, by their number of rounds. It goes on from plan to plan."""

    _beside: dict[int, deque[float]] = field(default_factory=dict)
    _rounds: int = 1

    def note(self, rounds: int, seconds: float, busiest: float) -> None:
        """Note a batch that took so long, of which the busiest processor worked some seconds."""
        self._rounds = rounds
        self._beside.setdefault(rounds, deque(maxlen=LOOKED_AT)).append(max(seconds - busiest, 0.0))

    @property
    def is_measured(self) -> bool:
        """Whether batches with more and with fewer rounds could be compared."""
        return self._other() is not None

    @property
    def seconds(self) -> float:
        """The seconds that a round costs a batch."""
        beside = {rounds: median(each) for rounds, each in self._beside.items()}
        other = self._other()
        if other is not None:
            return max((beside[self._rounds] - beside[other]) / (self._rounds - other), 0.0)
        known = {rounds: each for rounds, each in beside.items() if len(self._beside[rounds]) >= KNOWN}
        rounds = self._rounds if self._rounds in known else next(iter(known), 0)
        return known[rounds] / (rounds + BESIDE_ROUNDS) if known else UNKNOWN

    def _other(self) -> int | None:
        """The number of rounds that the present one can be compared with best."""
        known = [rounds for rounds, each in self._beside.items() if len(each) >= KNOWN]
        if self._rounds not in known or len(known) < 2:
            return None
        return min((rounds for rounds in known if rounds != self._rounds), key=lambda n: abs(n - self._rounds))
