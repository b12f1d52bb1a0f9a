"""Sizes of joins that nobody has made, counted in samples of the inputs.

A row of an input belongs to the sample of a class of equal terms if the hash of its key lies in a range of all hashes
that is the same for every input of the class. So the samples are *correlated*: of two rows that are equal in the class
either both are kept or neither. The rows that samples have in common are those that the whole inputs have, of a share
of all keys. With independent samples of a hundredth each, a ten-thousandth of the joined rows would be left.

Counted are sets of inputs of which any two have the same classes in common: those that are joined on one key. For the
others, over several classes, `MeasuredEstimates` goes on from these by independence.

What share of the keys a range has is known only roughly if there are few keys. So a count is divided by the share of
the rows that were kept, averaged over the inputs, which is exact where all keys have about the same number of rows.

What is taken from the samples are selectivities: which share of all combinations of stored rows is equal. How many
joined rows come into being and lie in state follows from these with arrivals and stored rows by the formulas of
`join_estimates`. Of the stored rows of a windowed stream a row is taken to meet those that are alive, and its window to
be as long as these took to come; others are kept beyond their window for late rows. Limits: whether equal rows come at
about the same time is not seen, nor are conditions that are no equalities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from anabranch.plan.arrangement import InputNumbers
from anabranch.plan.join_keys import reaches
from anabranch.plan.orders.join_estimates import IndependentEstimates, Inputs, MeasuredEstimates, Size
from anabranch.plan.query import LogicalQuery

Hashes = NDArray[np.uint64]

# What is counted where no two rows in the samples are equal: there may be some all the same.
NONE_FOUND = 0.5
# The odd number by which hashes of several classes are mixed: 2^64 over the golden ratio.
_MIXING = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class InputSample:
    """How many rows of an input are `stored`, and those kept of it: per class that it is sampled by, the hashes of
    these rows in each of its classes."""

    stored: int
    kept: Mapping[int, Mapping[int, Hashes]]


@dataclass(frozen=True, slots=True)
class JoinSample:
    """Samples of all inputs of a query, by the ranges of its classes; each range is this `share` of all hashes."""

    inputs: tuple[InputSample, ...]
    shares: Mapping[int, float]

    def counted(self, classes: Sequence[int]) -> KeyCounts:
        """The rows that were kept by a range of the first of these classes, by their key in all of them."""
        by = min(classes)
        having = [
            n for n, one in enumerate(self.inputs) if one.stored and all(c in one.kept.get(by, ()) for c in classes)
        ]
        keys = [_mixed([self.inputs[n].kept[by][c] for c in classes]) for n in having]
        distinct, places = np.unique(np.concatenate(keys), return_inverse=True)
        ends = np.cumsum([len(key) for key in keys])[:-1]
        # As floats: products of counts of eight inputs are beyond whole numbers.
        counts = [np.bincount(part, minlength=len(distinct)).astype(np.float64) for part in np.split(places, ends)]
        stored = {n: self.inputs[n].stored for n in having}
        return KeyCounts(dict(zip(having, counts, strict=True)), stored, self.shares[by])


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Per input how many rows of each key were kept in a `share` of all hashes, and how many are `stored` at all."""

    counts: Mapping[int, NDArray[np.float64]]
    stored: Mapping[int, int]
    share: float

    def matches(self, inputs: Inputs) -> float:
        """How many combinations of kept rows are equal."""
        return float(np.prod([self.counts[n] for n in inputs], axis=0).sum())

    def selectivity(self, inputs: Inputs) -> float:
        """Which share of all combinations of stored rows is equal."""
        kept = [self.counts[n].sum() / self.stored[n] for n in inputs]
        share = prod(kept) ** (1 / len(kept)) if all(kept) else self.share
        return min(max(self.matches(inputs), NONE_FOUND) / share / prod(self.stored[n] for n in inputs), 1.0)


def sampled_estimates(
    query: LogicalQuery, rates: Sequence[float], sample: JoinSample, alive: Sequence[float] = ()
) -> MeasuredEstimates:
    """The estimates for a query whose inputs have these arrivals per second and were sampled.

    Of an input's stored rows a share is `alive`, all unless it is given: the others are kept for late rows only.
    """
    classes = reaches(query.aliases, query.equalities)
    stored = [float(one.stored) for one in sample.inputs]
    filled = frozenset(n for n, rows in enumerate(stored) if rows)
    # By Little's law rows / (rows per second) is how long one is there, in the seconds that rates are in.
    residences = [
        rows / rate if entry.window is not None and rate > 0 and rows > 0 else None
        for entry, rate, rows in zip(query.inputs, rates, stored, strict=True)
    ]
    windows = [
        None if seconds is None else seconds * share
        for seconds, share in zip(residences, alive or [1.0] * len(residences), strict=True)
    ]
    equal = tuple(_equal_share(sample, number, reach & filled) for number, reach in enumerate(classes))
    independent = IndependentEstimates(
        tuple(rates), tuple(windows), tuple(stored), classes, equal, residences=tuple(residences)
    )
    measured = {}
    counted: dict[tuple[int, ...], KeyCounts] = {}
    for inputs, shared in _on_one_key(filled, classes):
        if shared not in counted:
            counted[shared] = sample.counted(shared)
        counts = counted[shared]
        ratio = counts.selectivity(inputs) / independent.selectivity(inputs)
        measured[inputs] = Size(ratio * independent.rows(inputs), ratio * independent.rate(inputs))
    return MeasuredEstimates(measured, independent)


def _equal_share(sample: JoinSample, number: int, reach: InputNumbers) -> float:
    """Which share of pairs of rows is equal in a class: the mean of all pairs of inputs."""
    if len(reach) < 2:
        return 1.0
    counts = sample.counted([number])
    pairs = [counts.selectivity(frozenset(pair)) for pair in combinations(sorted(reach), 2)]
    return sum(pairs) / len(pairs)


def _on_one_key(filled: Inputs, classes: Sequence[InputNumbers]) -> Iterator[tuple[Inputs, tuple[int, ...]]]:
    """The sets of inputs with rows that are joined on one key, and the classes of that key."""
    for size in range(2, len(filled) + 1):
        for chosen in combinations(sorted(filled), size):
            inputs = frozenset(chosen)
            shared = tuple(n for n, reach in enumerate(classes) if len(reach & inputs) > 1)
            if shared and all(inputs <= classes[n] for n in shared):
                yield inputs, shared


def _mixed(hashes: Sequence[Hashes]) -> Hashes:
    """One hash of several classes."""
    mixed = hashes[0]
    for other in hashes[1:]:
        mixed = (mixed * _MIXING) ^ other
    return mixed
