"""How many rows a join of some of a query's inputs has and makes: what orders of joins are compared by.

`Estimates` answers for a set of inputs, whatever the tree that joins them: how many of their joined rows lie in state
(`rows`), and how many come into being per second of event time (`rate`). Of one input these are its stored rows and its
arrivals.

A result needs every row to be within its own window of the newest one (SPEC section 0). So with rates r, windows W and
selectivity s, the share of all combinations that is equal and meets the conditions,

    rate = s * sum over j of (r_j * product over i != j of r_i * W_i)

which for two inputs is r_a * r_b * (W_a + W_b) * s, and equation 2 of paper 3 if the windows are equal. The paper
applies its equation again to go on to three inputs, which counts 4 r^3 W^2 where there are 3: it pairs a row with all
that lies in state, also with joined rows of which a part has left its window.

Joined rows lie in state for the smallest of their windows after their newest row (`watermark`), so there are
rate * W of them, as in the paper. Where nothing of them ever dies, because a stream is unbounded, they are the share of
all combinations of stored rows.

`IndependentEstimates` takes selectivities of classes and of pairs to be independent. `MeasuredEstimates` puts what was
measured of some sets above that. Neither sees skew, correlation or bursts, unless they are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from anabranch.plan.arrangement import InputNumbers
from anabranch.plan.join_keys import reaches
from anabranch.plan.query import LogicalQuery

# Inputs by their numbers.
Inputs = frozenset[int]

MICROSECONDS = 1_000_000


class Estimates(Protocol):
    """Sizes of joins of sets of inputs."""

    def rows(self, inputs: Inputs) -> float:
        """How many joined rows of exactly these inputs lie in state; of one input, its stored rows."""
        ...

    def rate(self, inputs: Inputs) -> float:
        """How many joined rows of exactly these inputs are made per second; of one input, its arrivals."""
        ...

    def equal_share(self, number: int) -> float:
        """Which share of all pairs is equal in the class with this number."""
        ...


@dataclass(frozen=True, slots=True)
class IndependentEstimates:
    """The textbook's product of rates, windows and selectivities.

    `rates` are rows per second, `windows` seconds (None is unbounded) and `stored` rows, each per input; rows lie in
    state for `residences` seconds, which are the windows unless more is said. A class has the inputs that it `reaches`
    and an `equal` share: that of all pairs of rows that are equal in it, so that n inputs of it multiply by its n-1st
    power. `pairs` are selectivities of what is between two inputs beside the classes.
    """

    rates: tuple[float, ...]
    windows: tuple[float | None, ...]
    stored: tuple[float, ...]
    reaches: tuple[InputNumbers, ...] = ()
    equal: tuple[float, ...] = ()
    pairs: Mapping[Inputs, float] = field(default_factory=dict)
    residences: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.rates) == len(self.windows) == len(self.stored):
            raise ValueError("rates, windows and stored rows are given for different numbers of inputs")
        if len(self.reaches) != len(self.equal):
            raise ValueError(f"there are {len(self.reaches)} classes, and {len(self.equal)} selectivities of classes")

    def rows(self, inputs: Inputs) -> float:
        """Joined rows in state."""
        if len(inputs) == 1:
            return self.stored[min(inputs)]
        residences = self.residences or self.windows
        bounded = [seconds for n in inputs if (seconds := residences[n]) is not None]
        others = [window for n, window in enumerate(self.windows) if n not in inputs]
        if bounded and None not in others:
            return self.rate(inputs) * min(bounded)
        return self.selectivity(inputs) * prod(self.stored[n] for n in inputs)

    def rate(self, inputs: Inputs) -> float:
        """Joined rows per second: every new row with all rows of the others that are in their windows."""
        made = sum(self.rates[n] * prod(self._in_window(other) for other in inputs - {n}) for n in inputs)
        return self.selectivity(inputs) * made

    def equal_share(self, number: int) -> float:
        """The selectivity of a class."""
        return self.equal[number]

    def selectivity(self, inputs: Inputs) -> float:
        """Which share of all combinations of rows of the inputs joins."""
        classes = prod(
            share ** max(0, len(inputs & reach) - 1) for share, reach in zip(self.equal, self.reaches, strict=True)
        )
        return classes * prod(share for pair, share in self.pairs.items() if pair <= inputs)

    def _in_window(self, n: int) -> float:
        window = self.windows[n]
        return self.stored[n] if window is None else self.rates[n] * window


def independent_estimates(
    query: LogicalQuery,
    rates: Sequence[float],
    equal: Sequence[float],
    *,
    pairs: Mapping[Inputs, float] | None = None,
    stored: Mapping[int, float] | None = None,
) -> IndependentEstimates:
    """The estimates for a query, whose windows they take, and per class that `join_keys.reaches` lists what is `equal`.

    `stored` rows have to be given of unbounded inputs; of others they are those of a window.
    """
    stored = stored or {}
    windows = tuple(None if entry.window is None else entry.window / MICROSECONDS for entry in query.inputs)
    unsized = [alias for n, alias in enumerate(query.aliases) if windows[n] is None and n not in stored]
    if unsized:
        raise ValueError(f"{', '.join(unsized)} is unbounded: say how many rows are stored")
    return IndependentEstimates(
        rates=tuple(rates),
        windows=windows,
        stored=tuple(
            stored.get(n, rate * (window or 0.0)) for n, (rate, window) in enumerate(zip(rates, windows, strict=True))
        ),
        reaches=reaches(query.aliases, query.equalities),
        equal=tuple(equal),
        pairs=pairs or {},
    )


@dataclass(frozen=True, slots=True)
class Size:
    """What was measured of a set of inputs: joined rows in state, and joined rows per second."""

    rows: float
    rate: float


@dataclass(frozen=True, slots=True)
class MeasuredEstimates:
    """What was `measured` of some sets of inputs, and for the others what follows from that and from `independent`.

    Of a set that was not measured, the largest measured parts correct what independence would make of it: each by how
    much more it has than its inputs by themselves would have given. A part is left out if it has two inputs that others
    connect already, since its correction is (at least partly) in theirs; so (A B) and (B C) both correct (A B C), and
    (A C) is left out then.
    """

    measured: Mapping[Inputs, Size]
    independent: IndependentEstimates

    def rows(self, inputs: Inputs) -> float:
        """Joined rows in state."""
        size = self.measured.get(inputs)
        if size is not None:
            return size.rows
        ratios = {part: _ratio(self.measured[part].rows, self.independent.rows(part)) for part in self._within(inputs)}
        return self.independent.rows(inputs) * _correction(ratios)

    def rate(self, inputs: Inputs) -> float:
        """Joined rows per second."""
        size = self.measured.get(inputs)
        if size is not None:
            return size.rate
        ratios = {part: _ratio(self.measured[part].rate, self.independent.rate(part)) for part in self._within(inputs)}
        return self.independent.rate(inputs) * _correction(ratios)

    def equal_share(self, number: int) -> float:
        """The selectivity of a class, which is not measured."""
        return self.independent.equal_share(number)

    def _within(self, inputs: Inputs) -> list[Inputs]:
        return [part for part in self.measured if part <= inputs]


def _ratio(measured: float, expected: float) -> float:
    """By how much more was measured; without an expectation nothing can be scaled."""
    return measured / expected if expected > 0 else 1.0


def _correction(ratios: Mapping[Inputs, float]) -> float:
    """The product of what single inputs and the largest parts have more than what they consist of."""
    singles = {min(part): ratio for part, ratio in ratios.items() if len(part) == 1}
    corrected = prod(singles.values())
    for part in _connecting(part for part in ratios if len(part) > 1):
        alone = prod(singles.get(n, 1.0) for n in part)
        corrected *= _ratio(ratios[part], alone)
    return corrected


def _connecting(parts: Iterable[Inputs]) -> list[Inputs]:
    """The largest parts, without those that have two inputs that larger ones connect already."""
    chosen: list[Inputs] = []
    connected: list[Inputs] = []
    for part in sorted(parts, key=lambda part: (-len(part), sorted(part))):
        touched = [group for group in connected if group & part]
        if all(len(group & part) == 1 for group in touched):
            chosen.append(part)
            connected = [group for group in connected if group not in touched] + [part.union(*touched)]
    return chosen
