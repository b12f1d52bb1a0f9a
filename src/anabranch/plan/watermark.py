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
the windows. A port with no other side is that of the grouping; it holds rows as long as a window can reach them from
what is not settled yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.plan.logical import ContinuousQuery, StreamSchema


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
        """Whether it is known at some time that nothing older comes."""
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
    """What feeds an input, and its lateness. An input has the watermark of its slowest source."""

    input: int
    lateness: int | None


@dataclass(frozen=True, slots=True)
class PortTime:
    """A port of an operator: the inputs whose rows it holds, and those on the other side of the operator."""

    inside: tuple[int, ...]
    outside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rows of a source older than its `late` are late, rows at a port older than its `purge` dead; None is never.

    What is older than `settled` is complete, where rows are grouped; None is nothing.
    """

    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]
    settled: int | None = None


def thresholds(
    inputs: Sequence[InputTime],
    ports: Sequence[PortTime],
    newest: Sequence[int | None],
    *,
    sources: Sequence[SourceTime] | None = None,
    settled: int | None = None,
) -> Thresholds:
    """What is late and what is dead, given the greatest ts seen per source, and what was settled, before this batch.

    Without `sources` every input is its own.
    """
    if sources is None:
        sources = [SourceTime(number, entry.lateness) for number, entry in enumerate(inputs)]
    late = tuple(
        seen - source.lateness
        if source.lateness is not None and seen is not None and can_be_late(inputs, source.input)
        else None
        for source, seen in zip(sources, newest, strict=True)
    )
    if settled is not None:
        late = tuple(settled if bound is None else max(bound, settled) for bound in late)
    marks = [
        _least([bound for source, bound in zip(sources, late, strict=True) if source.input == number])
        for number in range(len(inputs))
    ]
    now = _least(marks) if all(entry.grouped for entry in inputs) else None
    return Thresholds(late, tuple(_purge(inputs, port, marks, settled) for port in ports), now)


def can_be_late(inputs: Sequence[InputTime], j: int) -> bool:
    """Whether rows of input j are ever late: it has a watermark, and is grouped or some other input's rows can die."""
    dying = inputs[j].grouped or any(can_expire(inputs, i) for i in range(len(inputs)) if i != j)
    return inputs[j].has_watermark and dying


def port_window(inputs: Sequence[InputTime], port: PortTime) -> int | None:
    """The smallest window of the inputs inside; None if they have none."""
    return min((w for i in port.inside if (w := inputs[i].window) is not None), default=None)


def retention(inputs: Sequence[InputTime], port: PortTime) -> int | None:
    """About how much event time a row is kept at a port, or None if it is kept for ever."""
    window = port_window(inputs, port)
    if window is None or not all(can_be_late(inputs, j) for j in port.outside):
        return None
    return window + max(inputs[j].lateness or 0 for j in port.outside or port.inside)


def _least(bounds: Sequence[int | None]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return min(known) if len(known) == len(bounds) else None


def _purge(inputs: Sequence[InputTime], port: PortTime, marks: Sequence[int | None], settled: int | None) -> int | None:
    window = port_window(inputs, port)
    if not port.outside:
        return None if window is None or settled is None else settled - window
    bound = _least([marks[j] for j in port.outside])
    return None if window is None or bound is None else bound - window
