"""How far predictions of each kind of adaptation count: from 1, the word of its proposers, down to nearly nothing.

After each outcome the trust goes half of the way to the share of the prediction that came true. Beside that it recovers
slowly with every batch: what was wrong once may be right under another load, and is tried again after a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WEIGHT = 0.5
RECOVERY = 0.01
LEAST = 0.05


@dataclass(slots=True)
class Trust:
    """The trust by kind; 1 for those that nothing is known of."""

    factors: dict[str, float] = field(default_factory=dict)

    def of(self, kind: str) -> float:
        """What the predictions of a kind are multiplied by."""
        return self.factors.get(kind, 1.0)

    def learn(self, kind: str, predicted: float, measured: float) -> float:
        """Learn from an outcome; the trust from now on. More than was predicted is no fault."""
        share = min(max(measured / predicted, 0.0), 1.0) if predicted > 0 else 1.0
        before = self.of(kind)
        self.factors[kind] = max(before + WEIGHT * (share - before), LEAST)
        return self.factors[kind]

    def recover(self) -> None:
        """A batch has passed."""
        self.factors = {kind: factor + RECOVERY * (1 - factor) for kind, factor in self.factors.items()}
