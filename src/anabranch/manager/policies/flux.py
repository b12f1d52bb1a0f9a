"""Flux: repartition so that all processors are used alike (paper 2, sections 5.3, 6.1 and 6.3).

One algorithm for load and for memory. After each round (`flux_rounds`) a processor is a *site* with a level; sites are
sorted, the one with the highest level is paired with the one with the lowest, and so on inwards. A pair is considered
if the donor is not below the mean and donor/receiver >= `imbalance`; the first pair that is not ends the round. Of a
pair the first partition moves, the one with the largest weight first, that lowers the imbalance of the two.

- `FluxLoad`: the level is the utilisation U, the weight Np the tuples of the round, and a site that had T of them has
  afterwards Ud (1 - Np/Td) or Ur (1 + Np/Tr). A receiver above `utilisation` is not considered, and none is
  brought above 1. The speed of a receiver that has done nothing yet is taken to be the donor's.
- `FluxMemory`: the level is the excess memory, state size minus memory available, and the weight the size. A ratio of
  excesses says nothing at or below zero. So the largest memory of all is added to each: what is left is the size of the
  state, plus what a processor lacks to the largest. It is never negative, has the same order and differences, and with
  equal memories it is the size itself. A smaller memory looks as if somebody else had taken the rest, which is how
  memory gets short in the paper. If anybody has no budget, sizes are balanced. While all state would fit, a pair is
  also considered, whatever the ratio, if the donor is over its memory and the receiver is not, and no receiver is
  brought over its memory. Once all memory is exhausted, disk use is balanced.
- `FluxHybrid`: the memory rule while anything is spilled or anybody is over its memory, else the load rule for
  partitions that the receiver has memory for.

Beyond the paper a move also must not bring the receiver to where the donor was. With equal speeds that follows from a
lower imbalance. With different speeds it makes the levels, sorted from the highest, lexicographically smaller with each
move: so under a steady load no placement comes back, and moves end. Only a processor that was left without any load is
tried again from time to time, since its speed is not known any more.

Groups that are diffused stay. So do groups of which some state is on disk, unless `on_disk`; then they come after those
in memory. Their state on disk is not known by group and is taken to be spread evenly over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import inf

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups
from anabranch.manager.policies.arguments import is_number, seconds_of
from anabranch.manager.policies.flux_rounds import SAMPLE, Collected, FluxRounds
from anabranch.manager.policies.lazy_disk import relocate
from anabranch.manager.snapshot import Floats, Integers, Partitions, ProcessorView, Snapshot
from anabranch.observe.numbers import format_bytes

# Lower by more than rounding: two processors that swap their levels gain nothing.
LOWER = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Site:
    """A processor with its level, and the partitions that it can give at these positions, in the order they are tried.

    `cost` is what a unit of weight adds to the level. It can take partitions of so many bytes as it has `room` for.
    """

    processor: int
    level: float
    cost: float
    room: float
    partitions: Partitions
    weights: Floats
    order: Integers

    def per_weight(self, donor: Site) -> float:
        """How much a unit of weight from a donor adds to the level here; as much as there, if this site has had no
        load."""
        return self.cost or donor.cost


@dataclass(frozen=True, slots=True)
class Rule:
    """When a pair is considered, and what may become of it.

    Receivers above `busiest` are not considered and none comes above `most`. `full` is the level of a processor that
    has just no memory left. `text` tells a level to people.
    """

    imbalance: float
    busiest: float
    most: float
    full: float
    text: Callable[[float], str]

    def considers(self, donor: float, receiver: float) -> bool:
        """The threshold test of paper 2, section 5.3, but for the mean."""
        if receiver > self.busiest:
            return False
        return donor > self.full > receiver or donor >= self.imbalance * receiver


def balance(
    sites: Sequence[Site], rule: Rule, most: Callable[[int, int], int], differ: Callable[[int, int], bool]
) -> list[RelocateGroups] | None:
    """The moves of a round, in each pair at `most` so many: the highest level with the lowest, then inwards.

    None if there are none, but pairs that may yet `differ`.
    """
    ranked = sorted(sites, key=lambda site: -site.level)
    mean = sum(site.level for site in sites) / max(len(sites), 1)
    moves: list[RelocateGroups] = []
    unsure = False
    for nth in range(len(ranked) // 2):
        donor, receiver = ranked[nth], ranked[-1 - nth]
        if donor.level < mean or not rule.considers(donor.level, receiver.level):
            break
        if differ(donor.processor, receiver.processor):
            moves += _even_out(donor, receiver, rule, most(donor.processor, receiver.processor))
        else:
            unsure = True
    return moves if moves or not unsure else None


def _even_out(donor: Site, receiver: Site, rule: Rule, most: int) -> list[RelocateGroups]:
    """The first partitions of the donor that lower the imbalance of a pair, each after those before it."""
    giver, taker, tried = donor, receiver, 0
    chosen: list[int] = []
    while len(chosen) < most and rule.considers(giver.level, taker.level):
        order = donor.order[tried:]
        improving = np.flatnonzero(lowers(giver, taker, rule, order))
        if len(improving) == 0:
            break
        position = int(order[improving[0]])
        chosen.append(position)
        tried += int(improving[0]) + 1
        weight, size = float(donor.weights[position]), int(donor.partitions.bytes[position])
        giver = replace(giver, level=giver.level - weight * donor.cost)
        taker = replace(taker, level=taker.level + weight * receiver.per_weight(donor), room=taker.room - size)
    reason = (
        f"processor {donor.processor} {rule.text(donor.level)}, processor {receiver.processor} "
        f"{rule.text(receiver.level)}; expected then: the first {rule.text(giver.level)}, the second "
        f"{rule.text(taker.level)}"
    )
    return relocate(donor.processor, receiver.processor, donor.partitions, np.array(chosen, dtype=np.int64), reason)


def lowers(donor: Site, receiver: Site, rule: Rule, order: Integers) -> NDArray[np.bool_]:
    """Which partitions at some positions of the donor would lower the imbalance of the pair."""
    weights = donor.weights[order]
    donor_level = donor.level - weights * donor.cost
    receiver_level = receiver.level + weights * receiver.per_weight(donor)
    lowering: NDArray[np.bool_] = (
        (np.abs(donor_level - receiver_level) < LOWER * (donor.level - receiver.level))
        & (receiver_level < LOWER * donor.level)
        & (receiver_level <= rule.most)
        & (donor.partitions.bytes[order] <= receiver.room)
    )
    return lowering


def _balance_load(
    collected: Collected, imbalance: float, utilisation: float, per_round: int, *, within_memory: bool
) -> list[RelocateGroups] | None:
    """The moves of a round that make processors equally busy (paper 2, section 5.3)."""
    rule = Rule(imbalance, utilisation, 1.0, inf, lambda level: f"is busy {level:.0%} of the time")
    still = [view for view in collected.snapshot.processors if not view.moves]
    sites = [_load_site(view, collected, within_memory) for view in still]
    return balance(
        sites,
        rule,
        lambda donor, receiver: collected.most(donor, receiver, per_round),
        lambda donor, receiver: collected.differ(donor, receiver, imbalance),
    )


def _load_site(view: ProcessorView, collected: Collected, within_memory: bool) -> Site:
    partitions = view.partitions()
    tuples = collected.tuples(partitions)
    level, total = collected.utilisation(view.processor), int(tuples.sum())
    movable = (tuples > 0) & ~partitions.spilled & ~partitions.diffused
    order = np.flatnonzero(movable & ~collected.rests(partitions))
    order = order[np.argsort(-tuples[order], kind="stable")]
    room = view.memory - view.active_bytes if within_memory and view.memory is not None else inf
    return Site(
        view.processor, level, level / total if total else 0.0, room, partitions, tuples.astype(np.float64), order
    )


def _balance_memory(
    collected: Collected, imbalance: float, per_round: int, *, on_disk: bool
) -> list[RelocateGroups] | None:
    """The moves of a round that make processors equally short of memory (paper 2, section 6.1)."""
    processors = collected.snapshot.processors
    budgets = [view.memory for view in processors if view.memory is not None]
    limited = len(budgets) == len(processors)
    largest = max(budgets) if limited else 0
    exhausted = not limited or sum(budgets) <= sum(map(_state, processors))
    taken = f"of {format_bytes(largest)} taken" if limited else "of state"
    full = inf if exhausted else largest
    rule = Rule(imbalance, inf, inf, full, lambda level: f"has {format_bytes(round(level))} {taken}")
    sites = []
    for view in processors:
        if not view.moves:
            memory = view.memory if limited and view.memory is not None else largest
            left = memory - _state(view)
            room = inf if exhausted or left < 0 else left
            sites.append(_memory_site(view, collected, largest - left, room, on_disk))
    return balance(sites, rule, lambda *pair: per_round, lambda *pair: True)


def _memory_site(view: ProcessorView, collected: Collected, level: int, room: float, on_disk: bool) -> Site:
    partitions = _with_disk(view)
    movable = (partitions.bytes > 0) & ~partitions.diffused & ~collected.rests(partitions)
    order = np.flatnonzero(movable if on_disk else movable & ~partitions.spilled)
    order = order[np.lexsort((-partitions.bytes[order], partitions.spilled[order]))]
    return Site(view.processor, level, 1.0, room, partitions, partitions.bytes.astype(np.float64), order)


def _with_disk(view: ProcessorView) -> Partitions:
    """The partitions of a processor, with what they have on disk as part of their sizes."""
    partitions = view.partitions()
    share = view.spilled_bytes // max(int(partitions.spilled.sum()), 1)
    return replace(partitions, bytes=partitions.bytes + share * partitions.spilled)


def _state(view: ProcessorView) -> int:
    return view.active_bytes + view.spilled_bytes


def _is_short_of_memory(snapshot: Snapshot) -> bool:
    return any(
        view.spilled_bytes > 0 or (view.memory is not None and view.active_bytes > view.memory)
        for view in snapshot.processors
    )


def _rounds(imbalance: float, minimum: str | timedelta | None, per_round: int, sample: int = SAMPLE) -> FluxRounds:
    """The rounds of a policy, once its arguments are seen to make sense."""
    if not is_number(imbalance) or imbalance < 1:
        raise ConfigError(
            f"imbalance is how many times more a processor is used than another before load moves, from 1 on, "
            f"not {imbalance!r}"
        )
    if not isinstance(per_round, int) or isinstance(per_round, bool) or per_round < 1:
        raise ConfigError(f"per_round is a number of partitions, from 1 on, not {per_round!r}")
    return FluxRounds(None if minimum is None else seconds_of("minimum", minimum, "10 seconds"), sample)


def _check_utilisation(utilisation: float) -> None:
    if not is_number(utilisation) or not 0 < utilisation <= 1:
        raise ConfigError(f"utilisation is a share of the time, above 0 and up to 1, not {utilisation!r}")


def _check_on_disk(on_disk: bool) -> None:
    if not isinstance(on_disk, bool):
        raise ConfigError(f"on_disk is True or False, not {on_disk!r}")


@dataclass(slots=True)
class FluxLoad:
    """Move partitions from busy processors to idle ones (paper 2, section 5.3).

    Args:
        imbalance: how many times busier the one must be than the other (th_imb), from 1 on.
        utilisation: the share of the time above which a processor gets no more (th_util).
        minimum: how long to collect at least before the next moves (delta_min); None to find out.
        per_round: how many partitions a processor gives at a time; without `minimum` one, if the last of the pair to
            give was the other.
    """

    imbalance: float = 1.2
    utilisation: float = 0.9
    minimum: str | timedelta | None = None
    per_round: int = 1
    _rounds: FluxRounds = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        self._rounds = _rounds(self.imbalance, self.minimum, self.per_round)
        _check_utilisation(self.utilisation)

    def decide(self, snapshot: Snapshot) -> Iterator[RelocateGroups]:
        """Yield the moves of a round that ends with this snapshot."""
        return self._rounds.follow(snapshot, self._choose)

    def _choose(self, collected: Collected) -> list[RelocateGroups] | None:
        return _balance_load(collected, self.imbalance, self.utilisation, self.per_round, within_memory=False)


@dataclass(slots=True)
class FluxMemory:
    """Move partitions from processors that are short of memory to others (paper 2, section 6.1).

    Args:
        imbalance: how many times more memory must be taken on the one than on the other, from 1 on.
        on_disk: whether groups move of which some state is on disk, after all others.
        minimum: as of `FluxLoad`.
        per_round: as of `FluxLoad`.
    """

    imbalance: float = 1.2
    on_disk: bool = False
    minimum: str | timedelta | None = None
    per_round: int = 1
    _rounds: FluxRounds = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        # Sizes are what they are: one look is enough.
        self._rounds = _rounds(self.imbalance, self.minimum, self.per_round, sample=1)
        _check_on_disk(self.on_disk)

    def decide(self, snapshot: Snapshot) -> Iterator[RelocateGroups]:
        """Yield the moves of a round that ends with this snapshot."""
        return self._rounds.follow(snapshot, self._choose)

    def _choose(self, collected: Collected) -> list[RelocateGroups] | None:
        return _balance_memory(collected, self.imbalance, self.per_round, on_disk=self.on_disk)


@dataclass(slots=True)
class FluxHybrid:
    """Balance memory while it is short, and load otherwise (paper 2, section 6.3).

    Args:
        imbalance: as of `FluxLoad` and `FluxMemory`.
        utilisation: as of `FluxLoad`.
        on_disk: as of `FluxMemory`.
        minimum: as of `FluxLoad`.
        per_round: as of `FluxLoad`.
    """

    imbalance: float = 1.2
    utilisation: float = 0.9
    on_disk: bool = False
    minimum: str | timedelta | None = None
    per_round: int = 1
    _rounds: FluxRounds = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        self._rounds = _rounds(self.imbalance, self.minimum, self.per_round)
        _check_utilisation(self.utilisation)
        _check_on_disk(self.on_disk)

    def decide(self, snapshot: Snapshot) -> Iterator[RelocateGroups]:
        """Yield the moves of a round that ends with this snapshot."""
        return self._rounds.follow(snapshot, self._choose)

    def _choose(self, collected: Collected) -> list[RelocateGroups] | None:
        if _is_short_of_memory(collected.snapshot):
            return _balance_memory(collected, self.imbalance, self.per_round, on_disk=self.on_disk)
        return _balance_load(collected, self.imbalance, self.utilisation, self.per_round, within_memory=True)
