"""Late rows and purgeable state (SPEC section 0), as pure arithmetic on event time.

The watermark of input j is the greatest ts seen before the batch minus j's lateness; it exists only if j has a
window and a lateness. From now on j delivers nothing older.

A stored row s of input i can only be part of a new result through a later row x of some other input j, and needs
s.ts >= x.ts - w_i >= watermark_j - w_i. So rows older than min over j != i of watermark_j, minus w_i, are dead. If
any of the other inputs has no watermark (it is unbounded, or has no lateness) nothing of i ever dies.

Where no window can expire, no row is late: dropping it would save nothing. What is late depends on the query alone,
not on the operators that it is made of.

In a plan of several operators a port may hold rows that are joined already. Such a row, made of rows of inputs I, can
only be part of a new result through a later row of the inputs O on the other side of its operator. The smallest of its
ts + w is at most TSmax, its newest ts, plus the smallest window of I; so if TSmax is older than the smallest watermark
of O minus that window, it is dead (lemma 2.2 of paper 3, TSmin(new) - TSmax(stored) > W, for windows that differ). For
an operator that joins all inputs at once this is the rule above.

Where rows are grouped the answer to a row is known when no older one can come: it is *settled* at the smallest
watermark of all inputs. So there every input must have a lateness, and rows behind what is settled are late whatever
the windows: rows of a stream before they travel, joined ones where they come to the grouping. The port of a grouping
holds rows as long as a window can reach them from what is not settled yet.

An operator that has spilled state owes results that are older than any watermark says. They are made of at least one
row that came after the spill, so they are not older than the watermarks were then: that time is the operator's
*frontier* until clean-up has paid. What takes rows from it waits there: nothing behind the frontier is settled, and
nothing dies that could still meet what is owed.

Rows that have arrived may be *held* back for a while before their operator sees them. Whether they were late was
decided when they came. Until they go on, the results that they will be part of are owed, and what they will meet at
their own operator must not die: its ports wait as if the other side were as old as the oldest row that is held. At a
grouping they are in the way of the answers of their own groups only; the others go on. What it owes then, and what must
not die there, begins where those groups were left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.plan.query import ContinuousQuery, StreamSchema


@dataclass(frozen=True, slots=True)
class Backlog:
    """What has still to come although watermarks have passed it, by operator: the oldest possible time of `owed`
    results and of `held` rows; None if it is not known."""

    owed: Mapping[int, int | None] = field(default_factory=dict)
    held: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InputTime:
    """Window and lateness of one input in microseconds; None is unbounded, or never late.

    Where rows are `grouped`, an input has a watermark whether or not it has a window.
    """

    window: int | None
    lateness: int | None
    grouped: bool = False

    @property
    def has_watermark(self) -> bool:
        """Whether there is a time behind which nothing comes any more."""
        return self.lateness is not None and (self.grouped or self.window is not None)


def input_times(query: ContinuousQuery, streams: Mapping[str, StreamSchema]) -> tuple[InputTime, ...]:
    """The times of a query's inputs."""
    grouping = query.grouping
    lateness = [streams[entry.stream].lateness for entry in query.inputs]
    # An operator may do without knowing what is complete; aggregates may not.
    grouped = grouping is not None and (grouping.applied is None or None not in lateness)
    return tuple(InputTime(entry.window, late, grouped) for entry, late in zip(query.inputs, lateness, strict=True))


def can_expire(inputs: Sequence[InputTime], i: int) -> bool:
    """Whether rows of input i can ever die."""
    others = [other for j, other in enumerate(inputs) if j != i]
    return inputs[i].window is not None and all(other.has_watermark for other in others)


@dataclass(frozen=True, slots=True)
class SourceTime:
    """What feeds an input, and the lateness behind which its rows are late; None is never.

    An input has the watermark of its slowest source. `grouped_by` is the number of the grouping that gets the rows as
    they are.
    """

    input: int
    lateness: int | None
    grouped_by: int | None = None


@dataclass(frozen=True, slots=True)
class PortTime:
    """A port: the inputs whose rows it holds, and those on the other side of its operator.

    `window` is the smallest of the inputs inside; None if they have none. The port of a grouping has no other side, but
    the grouping's number. `debtors` are the operators whose results come in on the other side; for a grouping, inside.
    The port is one of `operator`.
    """

    inside: tuple[int, ...]
    outside: tuple[int, ...]
    window: int | None
    grouping: int | None = None
    debtors: tuple[int, ...] = ()
    operator: int = 0


@dataclass(frozen=True, slots=True)
class BlockTime:
    """A block that feeds an input: the inputs that its rows are made of, and its grouping's number if it has one.

    Of joined rows nothing comes behind all watermarks of what they are made of; of groups, behind what was answered. Of
    rows without an event time nothing can be said (`timed`). `debtors` are the operators of the block.
    """

    input: int
    inside: tuple[int, ...]
    grouping: int | None = None
    timed: bool = True
    debtors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rows of a source older than its `late` are late, rows at a port older than its `purge` dead; None is never.

    What is older than `settled`, per grouping, is complete; None is nothing. `marks` are the watermarks by input.
    """

    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]
    settled: tuple[int | None, ...] = ()
    marks: Mapping[int, int | None] = field(default_factory=dict)


def thresholds(
    sources: Sequence[SourceTime],
    ports: Sequence[PortTime],
    newest: Sequence[int | None],
    settled: Sequence[int | None] = (),
    blocks: Sequence[BlockTime] = (),
    frontiers: Mapping[int, int | None] | None = None,
    held: Mapping[int, int | None] | None = None,
) -> Thresholds:
    """Compute what is late, dead and settled in a batch, from the greatest ts per source and what was settled before
    it.

    `blocks` stand in an order in which each comes before those that it feeds. `frontiers` are those of the
    operators that owe something; `held`, by operator, are the oldest rows that wait, or up to where a grouping has
    answered the groups that they belong to.
    """
    waiting = held or {}
    owing = earlier_times(frontiers or {}, waiting)
    late = [
        None if source.lateness is None or seen is None else seen - source.lateness
        for source, seen in zip(sources, newest, strict=True)
    ]
    for number, source in enumerate(sources):
        answered = None if source.grouped_by is None else settled[source.grouped_by]
        if answered is not None:
            late[number] = _greatest([answered, late[number]])
    marks: dict[int, int | None] = {}
    for source, bound in zip(sources, late, strict=True):
        marks[source.input] = _least([bound, marks[source.input]]) if source.input in marks else bound
    for block in blocks:
        bound = settled[block.grouping] if block.grouping is not None else _least([marks[i] for i in block.inside])
        bound = _least([bound, *_debts(block.debtors, owing)]) if block.timed else None
        marks[block.input] = _least([bound, marks[block.input]]) if block.input in marks else bound
    now = list(settled)
    for port in ports:
        if port.grouping is not None:
            complete = _least([*(marks[i] for i in port.inside), *_debts(port.debtors, owing)])
            now[port.grouping] = _greatest([settled[port.grouping], complete])
    purge = tuple(_purge(port, marks, settled, owing, waiting) for port in ports)
    return Thresholds(tuple(late), purge, tuple(now), marks)


def earlier_times(some: Mapping[int, int | None], others: Mapping[int, int | None]) -> dict[int, int | None]:
    """By operator, the earlier of two times; None is the earliest."""
    return {n: _least([times[n] for times in (some, others) if n in times]) for n in some.keys() | others.keys()}


def frontier(
    inputs: Collection[int],
    below: Collection[int],
    marks: Mapping[int, int | None],
    frontiers: Mapping[int, int | None],
) -> int | None:
    """The time that no result of later rows can be older than, for an operator over some inputs.

    `below` are the operators that it takes rows from.
    """
    return _least([*(marks.get(i) for i in inputs), *_debts(below, frontiers)])


def settled_at_end(
    ports: Sequence[PortTime], blocks: Sequence[BlockTime], ends: Sequence[int | None], settled: Sequence[int | None]
) -> tuple[int | None, ...]:
    """What is settled, per grouping, in a step that takes the input for ended; `ends` are the times after its last
    rows.

    What a grouping below answers in this step is not there yet. So a grouping is as far as those below it were, but for
    those that have nothing left to answer.
    """
    now = list(settled)
    for port in ports:
        if port.grouping is None or ends[port.grouping] is None:
            continue
        inside = with_feeding_inputs(port.inside, blocks)
        under = [block.grouping for block in blocks if block.input in inside and block.grouping is not None]
        lower = [settled[g] for g in under if not is_answered(settled[g], ends[g])]
        now[port.grouping] = _greatest([settled[port.grouping], _least([ends[port.grouping], *lower])])
    return tuple(now)


def is_answered(settled: int | None, end: int | None) -> bool:
    """Whether a grouping has answered all its rows; they end at `end`, None if there are none."""
    return end is None or (settled is not None and settled >= end)


def can_be_late(inputs: Sequence[InputTime], j: int) -> bool:
    """Whether rows of input j are ever late: it has a watermark, and is grouped or some other input's rows can die."""
    dying = inputs[j].grouped or any(can_expire(inputs, i) for i in range(len(inputs)) if i != j)
    return inputs[j].has_watermark and dying


def with_feeding_inputs(inputs: Collection[int], blocks: Sequence[BlockTime]) -> set[int]:
    """These inputs, together with the inputs of all blocks that feed them."""
    numbers = set(inputs)
    for block in reversed(blocks):
        if block.input in numbers:
            numbers |= set(block.inside)
    return numbers


def retention(sources: Sequence[SourceTime], port: PortTime, blocks: Sequence[BlockTime] = ()) -> int | None:
    """About how much event time a row is kept at a port, or None if it is kept for ever."""
    decisive = with_feeding_inputs(port.outside or port.inside, blocks)
    latenesses = [source.lateness for source in sources if source.input in decisive]
    finite = [lateness for lateness in latenesses if lateness is not None]
    if port.window is None or (port.outside and len(finite) < len(latenesses)):
        return None
    return port.window + max(finite, default=0)


def _least(bounds: Sequence[int | None]) -> int | None:
    limits = [bound for bound in bounds if bound is not None]
    return min(limits) if len(limits) == len(bounds) else None


def _greatest(bounds: Sequence[int | None]) -> int | None:
    return max((bound for bound in bounds if bound is not None), default=None)


def _debts(operators: Collection[int], frontiers: Mapping[int, int | None]) -> list[int | None]:
    return [frontiers[n] for n in operators if n in frontiers]


def _purge(
    port: PortTime,
    marks: Mapping[int, int | None],
    settled: Sequence[int | None],
    frontiers: Mapping[int, int | None],
    held: Mapping[int, int | None],
) -> int | None:
    waits = _debts([port.operator], held)
    if port.grouping is not None:
        bound = _least([settled[port.grouping], *waits])
    else:
        bound = _least([*(marks[j] for j in port.outside), *_debts(port.debtors, frontiers), *waits])
    return None if port.window is None or bound is None else bound - port.window
