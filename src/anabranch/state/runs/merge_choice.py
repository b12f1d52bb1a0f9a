"""Choose which sorted runs of a spine are merged with each other.

`FAN_IN` runs of about equal size (a tier) are merged, so n rows lie in O(log n) runs and each row is rewritten O(log n)
times. Runs that together span more than `max_span` of event time are not merged, unless each is about as wide by
itself: so files expire as a whole. Runs that list less than half of what they span are written anew, whatever their
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.state.runs.merge import Merge
from anabranch.state.runs.slice import SortedRun, count_rows, merge_order, time_span

FAN_IN = 8
SMALLEST_TIER = 4_096


def choose_merges(runs: Sequence[SortedRun], max_span: int | None) -> tuple[tuple[SortedRun, ...], list[Merge]]:
    """Begin the merges that are due: the runs that are not in one, in the order of `merge_order`, and the merges."""
    waiting = sorted(runs, key=merge_order)
    alike: dict[tuple[int, int | None], list[SortedRun]] = {}
    for run in waiting:
        alike.setdefault(_kind(run, max_span), []).append(run)
    merges, taken = list[Merge](), list[SortedRun]()
    for kind in sorted(alike, key=lambda kind: kind[0], reverse=True):
        for due in _mergeable([run for run in alike[kind] if run not in taken], kind[1]):
            joined = _with_smaller(due, [run for run in waiting if run not in taken], max_span)
            merges.append(Merge((), joined))
            taken += joined
    return tuple(run for run in waiting if run not in taken), merges


def is_sparse(run: SortedRun) -> bool:
    """Whether a run lists less than half of the rows that it spans, because groups have left it."""
    return 2 * count_rows(run) < sum(piece.stop - piece.start for piece in run)


def is_cut_up(merge: Merge) -> bool:
    """Whether groups have left a merge, so that it is better begun anew."""
    return is_sparse(merge.target) or (not merge.target and any(map(is_sparse, merge.sources)))


def _tier(rows: int) -> int:
    tier = 0
    while rows >= SMALLEST_TIER * FAN_IN:
        rows //= FAN_IN
        tier += 1
    return tier


def _kind(run: SortedRun, max_span: int | None) -> tuple[int, int | None]:
    """The tier of a run, and the event time that a merge of it may span: runs of one kind are merged."""
    return _tier(count_rows(run)), _allowed_span(run, max_span)


def _allowed_span(run: SortedRun, max_span: int | None) -> int | None:
    """How much event time a merge of this run may span: `max_span`, or at least twice what the run spans already.

    Rows that arrive out of order make runs that are wide by themselves and overlap. If they were not merged, there
    would be one for every batch within the time that rows are kept. Runs that follow each other in time do not fit
    into twice their own span when there are `FAN_IN` of them, so these still expire one by one.
    """
    if max_span is None:
        return None
    oldest, newest = time_span(run)
    allowed = max(max_span, 1)
    while allowed < 2 * (newest - oldest):
        allowed *= 2
    return allowed


def _mergeable(runs: list[SortedRun], max_span: int | None) -> Iterator[tuple[SortedRun, ...]]:
    """Batches of `FAN_IN` runs that are close enough in event time to be merged; `runs` are in the order of
    `merge_order`."""
    batch: list[SortedRun] = []
    for run in runs:
        batch.append(run)
        if max_span is not None:
            newest = time_span(run)[1]
            batch = [member for member in batch if newest - time_span(member)[0] <= max_span]
        if len(batch) == FAN_IN:
            yield tuple(batch)
            batch = []


def _with_smaller(due: tuple[SortedRun, ...], runs: Sequence[SortedRun], max_span: int | None) -> tuple[SortedRun, ...]:
    """Add to the runs that are due the smaller `runs` that lie between them or just before, if time allows.

    The rows of a batch are of one tier before groups arrive or leave, and of another afterwards. If only runs of one
    tier were merged, every key would go back in time between the result and the others. A run that is older than one
    of the same tier or a larger one stays, to be merged with that.
    """
    tier, allowed = _kind(due[0], max_span)
    newest = max(time_span(run)[1] for run in due)
    joined: list[SortedRun] = []
    for run in runs[: runs.index(due[-1]) + 1]:
        size, span = _kind(run, max_span)
        is_close = span == allowed and (allowed is None or newest - time_span(run)[0] <= allowed)
        if run in due or (size < tier and is_close):
            joined.append(run)
        elif size >= tier and due[0] not in joined:
            joined.clear()
    return tuple(joined)


def close_in_time(runs: list[SortedRun], max_span: int | None) -> Iterator[tuple[SortedRun, ...]]:
    """All runs, oldest first, in batches that are close enough in event time to be merged."""
    batch: list[SortedRun] = []
    for run in sorted(runs, key=merge_order):
        together = time_span(tuple(piece for member in (*batch, run) for piece in member))
        allowed = (_allowed_span(member, max_span) for member in (*batch, run))
        if batch and any(most is not None and together[1] - together[0] > most for most in allowed):
            yield tuple(batch)
            batch = []
        batch.append(run)
    if batch:
        yield tuple(batch)
