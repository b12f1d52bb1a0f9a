"""What a distribution pattern is, and the placements that follow from what it gives.

What it gives is valid if every operator is placed exactly once, and every processor is alive (paper 5, section 5.1.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from anabranch.errors import ConfigError
from anabranch.manager.actions.numbers import is_whole
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.plan.placement import Placement, even_placement, placement_by_shares, spread_over

# The processor that an operator is whole on, several that it is spread over, or None for all of them.
Where = int | tuple[int, ...] | None


class Pattern(Protocol):
    """Anything that says where operators are at first."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, Where]:
        """Where each operator is, by its number; `processors` are the numbers of those that are alive."""


def check_placed(
    pattern: Pattern, graph: OperatorGraph, processors: Sequence[int], given: object
) -> dict[int, tuple[int, ...] | None]:
    """What a pattern gave, by operator, if it is valid; an operator that is whole is on one of several."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"the pattern {pattern!r} gave {given!r}; place() must give a dict from operator to processor"
        )
    numbers = range(len(graph.operators))
    lacking = [n for n in numbers if n not in given]
    if lacking:
        raise ConfigError(
            f"the pattern {pattern!r} does not place operator {lacking[0]} (a {graph.operators[lacking[0]].kind}); "
            "every operator must be placed exactly once"
        )
    for n, where in given.items():
        if not is_whole(n) or n not in numbers:
            raise ConfigError(
                f"the pattern {pattern!r} places an operator {n!r}; there are those from 0 to {numbers[-1]}"
            )
        hosts = where if isinstance(where, tuple) else (where,)
        if where is not None and (not hosts or not all(is_whole(p) and p in processors for p in hosts)):
            raise ConfigError(
                f"the pattern {pattern!r} places operator {n} on {where!r}; the processors are "
                f"{', '.join(map(str, processors))}"
            )
    return {
        int(n): None if where is None else where if isinstance(where, tuple) else (where,) for n, where in given.items()
    }


def placements_of(
    pattern: Pattern, graph: OperatorGraph, groups: int, processors: int, shares: Sequence[float] | None = None
) -> tuple[Placement, ...]:
    """The placement of each operator by a pattern.

    `shares` are those that processors have of operators which are spread over all of them; None is equal ones.
    """
    everybody = tuple(range(processors))
    homes = check_placed(pattern, graph, everybody, pattern.place(graph, everybody))
    spread = even_placement(groups, processors) if shares is None else placement_by_shares(groups, shares)
    return tuple(
        spread if hosts is None else spread_over(hosts, groups)
        for hosts in (homes[n] for n in range(len(graph.operators)))
    )
