"""The verdict on paper 5, by counts: patterns, redistribution, an operator that moves, and the manager itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anabranch.bench.experiments.dcape.plan import PLANS, TWENTY
from anabranch.bench.experiments.dcape.trace import PlacementTrace, static, steady
from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.observe.numbers import format_bytes

ROUND_ROBIN, GROUPING, OURS = "round-robin", "grouping", "fewest-rounds"
COMPARED = (ROUND_ROBIN, GROUPING, OURS)
MANAGER_SHARE = 0.01  # of a batch
GROWTH_OF_REPORTS = 1.5  # with any number of rows


def same_answer(traces: Sequence[PlacementTrace]) -> Iterator[Claim]:
    """Claim that counts are those of the placement. Answers have been compared row by row."""
    yield Claim(
        "every run has the answer of its input, and in every batch the rounds and the exchanged rows that follow from "
        "the placement",
        all(trace.as_placed for trace in traces),
        f"{sum(len(trace.batches) for trace in traces)} batches of {len(traces)} runs",
    )


def patterns(traces: Sequence[PlacementTrace]) -> Iterator[Claim]:
    """Compare patterns on each plan and number of processors."""
    robin, grouping, ours = (static(traces, TWENTY.name, pattern) for pattern in COMPARED)
    yield Claim(
        "20 operators: grouping needs fewer rounds than round robin on 2 to 5 processors",
        all(grouping[p].last.rounds < robin[p].last.rounds for p in grouping if p > 1),
        _pairs(grouping, robin, lambda trace: trace.last.rounds),
    )
    yield Claim(
        "20 operators: fewer edges cross with grouping than with round robin on 2 to 5 processors (thesis: 8 and 17)",
        all(grouping[p].last.costs.crossing < robin[p].last.costs.crossing for p in grouping if p > 1),
        _pairs(grouping, robin, lambda trace: trace.last.costs.crossing),
    )
    every = [(static(traces, plan.name, OURS), static(traces, plan.name, GROUPING)) for plan in PLANS]
    yield Claim(
        "FewestRounds needs no more rounds, and exchanges no more rows, than grouping, for any plan and any number of "
        "processors",
        all(
            mine[p].last.rounds <= other[p].last.rounds and mine[p].last.exchanged <= other[p].last.exchanged
            for mine, other in every
            for p in mine
        ),
        f"20 operators on 2 to 5: {_pairs(ours, grouping, lambda trace: trace.last.rounds)} rounds, "
        f"{_pairs(ours, grouping, lambda trace: trace.last.exchanged)} rows",
    )
    yield Claim(
        "20 operators: the processor with the most state has the least of it with FewestRounds",
        all(ours[p].busiest <= min(robin[p].busiest, grouping[p].busiest) for p in ours),
        "; ".join(
            f"{p} processors {ours[p].busiest:.1f}, grouping {grouping[p].busiest:.1f}, round robin "
            f"{robin[p].busiest:.1f} fair shares"
            for p in sorted(ours)
            if p > 1
        ),
    )


def redistribution(traces: Sequence[PlacementTrace]) -> Iterator[Claim]:
    """Claim what Degradation makes of a bad start and of a good one."""
    for pattern, share, text in (
        (ROUND_ROBIN, 0.5, "at least halves the rows exchanged of a round-robin start"),
        (GROUPING, 1.0, "exchanges no more rows than a start with grouping does"),
    ):
        stayed, moved = _last_with(traces, pattern)
        yield Claim(
            f"20 operators: degradation {text}",
            moved.last.exchanged <= share * stayed.last.exchanged and len(moved.moves) > 0,
            f"{moved.last.exchanged:,} instead of {stayed.last.exchanged:,} rows in the last batch, "
            f"{moved.last.costs.sent:,} instead of {stayed.last.costs.sent:,} on edges that cross, {moved.last.rounds} "
            f"instead of {stayed.last.rounds} rounds, after {len(moved.moves)} moves; the most state is "
            f"{moved.busiest:.1f} fair shares, and was {stayed.busiest:.1f}",
        )


def moving(never: PlacementTrace, once: PlacementTrace, often: PlacementTrace) -> Iterator[Claim]:
    """Claim that moves cost nothing beyond the round of an operator that is not with its family."""
    before = never.last.exchanged
    yield Claim(
        "an operator that moves every third batch exchanges no row more than one that has moved once, and none beyond "
        "those of its own round",
        [batch.exchanged for batch in often.batches] == [batch.exchanged for batch in once.batches]
        and often.last.rounds == once.last.rounds
        and often.as_placed
        and len(often.moves) > len(once.moves),
        f"{len(often.moves)} moves: {often.last.exchanged:,} rows in {often.last.rounds} rounds, with 1 move "
        f"{once.last.exchanged:,} in {once.last.rounds}, without {before:,} in {never.last.rounds}",
    )


def manager(small: PlacementTrace, large: PlacementTrace) -> Iterator[Claim]:
    """Claim that the manager takes next to nothing (figures 4.8 to 4.10): the one claim that is measured by a clock."""
    seconds = sum(batch.seconds for batch in steady(large))
    own = sum(batch.manager_seconds for batch in steady(large))
    yield Claim(
        f"the manager's own CPU time is less than {MANAGER_SHARE:.0%} of a batch",
        own < MANAGER_SHARE * seconds,
        f"{own / seconds:.2%}: {1000 * own / len(steady(large)):.1f} ms of {seconds / len(steady(large)):.2f} s, with "
        f"{format_bytes(large.last.manager_bytes)} in memory",
    )
    few, many = small.last, large.last
    yield Claim(
        "what processors report to it does not grow with the rows",
        many.report_bytes <= GROWTH_OF_REPORTS * few.report_bytes,
        f"{format_bytes(few.report_bytes)} in a batch that exchanges {few.exchanged:,} rows, "
        f"{format_bytes(many.report_bytes)} in one of {many.exchanged:,}",
    )


def _last_with(traces: Sequence[PlacementTrace], pattern: str) -> tuple[PlacementTrace, PlacementTrace]:
    """The runs from a start without redistribution and with it."""
    moved = next(trace for trace in traces if trace.pattern == pattern and trace.moved_by == "degradation")
    stayed = next(
        trace
        for trace in traces
        if (trace.plan, trace.pattern, trace.processors, len(trace.batches), trace.moved_by)
        == (moved.plan, pattern, moved.processors, len(moved.batches), "")
    )
    return stayed, moved


def _pairs(
    mine: dict[int, PlacementTrace], other: dict[int, PlacementTrace], of: Callable[[PlacementTrace], int]
) -> str:
    """A count of two patterns, by number of processors."""
    return ", ".join(f"{of(mine[p]):,} and {of(other[p]):,}" for p in sorted(mine) if p > 1)
