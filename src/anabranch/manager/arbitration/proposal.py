"""A proposal: what one policy wants done to some processors, with what that is estimated to gain and to cost.

The unit is seconds of batch time. What goes on for a while is gained in every batch that it is expected to last; bytes
over a budget count as what it would take to clean them up (`estimates/pressure`).
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.manager.actions import Action


@dataclass(frozen=True, slots=True)
class Estimate:
    """What actions are estimated to do to the processors that they touch.

    The busiest of these takes `before` seconds for a batch now, and `after` then, for as many batches as it is expected
    to be `lasting`. Besides there are `once` seconds to gain, and it `costs` so many. What keeps a promise to the user,
    such as a budget, is `pressing`: it is done whatever it costs.
    """

    before: float
    after: float
    lasting: float
    once: float = 0.0
    costs: float = 0.0
    pressing: bool = False

    @property
    def per_batch(self) -> float:
        """The seconds that a batch takes less."""
        return self.before - self.after

    @property
    def gain(self) -> float:
        """All the seconds that are to be gained."""
        return self.per_batch * self.lasting + self.once


@dataclass(frozen=True, slots=True)
class Proposal:
    """Actions of one `kind` of adaptation that touch the same `processors`, with their estimate."""

    kind: str
    actions: tuple[Action, ...]
    processors: frozenset[int]
    estimate: Estimate

    @property
    def reason(self) -> str:
        """Why its policy wants it."""
        return self.actions[0].reason

    def net(self, trust: float) -> float:
        """What is left of the gain, as far as that is believed, after the costs."""
        return trust * self.estimate.gain - self.estimate.costs
