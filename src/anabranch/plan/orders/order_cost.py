"""What one order of joins costs: rows made between its operators, rows in state, exchanges, and work.

The work per second of an operator is counted in rows:

    1  for each row that comes to one of its ports, which is probed with and stored,
    1  more if it is exchanged to get there: rows of streams always, those of operators unless they run fused,
    1  for each combination that meets on the key, whether or not it then passes the checks on other classes.

An m-way operator makes no partial combinations: it looks first which keys are everywhere. Conditions that are no
equalities are in the estimates of what comes out, but not in what meets. Keys are narrowed, and operators with the
same key are fused, as the engine does it (`arrangement`, `rounds`), as if conditions between two operators never
needed an exchange; one that a processor cannot evaluate itself does. A grouping above the joins is left out, and so is
what other queries share.

Exchanges are rounds, those that follow each other: a batch is never quicker than that many shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from anabranch.plan.arrangement import InputNumbers, Meeting, Shape, arrange
from anabranch.plan.join_keys import reaches
from anabranch.plan.orders.join_estimates import Estimates, Inputs
from anabranch.plan.query import LogicalQuery
from anabranch.plan.rounds import Edge, compile_rounds
from anabranch.plan.shape_text import shape_text


@dataclass(frozen=True, slots=True)
class JoinOrderCost:
    """An order of joins, as `shape` and as `text` for `joins=`, and what it costs.

    `intermediate_rate` are rows per second that all operators but the root make, `intermediate_rows` those of them that
    lie in state, `work` is in rows per second.
    """

    shape: Shape
    text: str
    intermediate_rate: float
    intermediate_rows: float
    exchanges: int
    work: float


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """What one operator adds: rows made and stored between operators are those that it takes from others."""

    taken_rate: float
    taken_rows: float
    work: float


def order_cost(query: LogicalQuery, shape: Shape | None, estimates: Estimates) -> JoinOrderCost:
    """What the joins of the query cost in one order; None is the one that is taken where nothing is said.

    Raises `UnconnectedError` if the order joins what has nothing in common.
    """
    classes = reaches(query.aliases, query.equalities)
    leaves = len(query.inputs)
    meetings = arrange(leaves, classes, shape)
    holds = inputs_of_parts(leaves, meetings)
    edges = [
        Edge(part - leaves, n, p)
        for n, meeting in enumerate(meetings)
        for p, part in enumerate(meeting.parts)
        if part >= leaves
    ]
    rounds = compile_rounds([meeting.keys for meeting in meetings], edges)
    fused = {leaves + edge.lower for edge in rounds.local}
    costs = []
    for meeting in meetings:
        parts = [holds[part] for part in meeting.parts]
        local = [part in fused for part in meeting.parts]
        costs.append(operator_cost(parts, local, meeting.checks, classes, estimates))
    tree = tree_of(leaves, meetings)
    return JoinOrderCost(
        shape=tree,
        text=shape_text(tree, query.aliases),
        intermediate_rate=sum(cost.taken_rate for cost in costs),
        intermediate_rows=sum(cost.taken_rows for cost in costs),
        exchanges=rounds.count,
        work=sum(cost.work for cost in costs),
    )


def operator_cost(
    parts: Sequence[Inputs],
    fused: Sequence[bool],
    checks: Sequence[int],
    classes: Sequence[InputNumbers],
    estimates: Estimates,
) -> OperatorCost:
    """What an operator costs that joins `parts`, of which some run `fused` with it, with some classes as `checks`."""
    taken = [part for part in parts if len(part) > 1]
    coming = [estimates.rate(part) for part in parts]
    exchanged = sum(rate for rate, local in zip(coming, fused, strict=True) if not local)
    return OperatorCost(
        taken_rate=sum(map(estimates.rate, taken)),
        taken_rows=sum(map(estimates.rows, taken)),
        work=sum(coming) + exchanged + _met(parts, checks, classes, estimates),
    )


def _met(
    parts: Sequence[Inputs], checks: Sequence[int], classes: Sequence[InputNumbers], estimates: Estimates
) -> float:
    """Combinations per second that are equal in the key: those that come out, and those that the checks drop."""
    passing = prod(estimates.equal_share(n) ** (sum(bool(part & classes[n]) for part in parts) - 1) for n in checks)
    made = estimates.rate(frozenset().union(*parts))
    return made / passing if passing > 0 else made


def inputs_of_parts(leaves: int, meetings: Sequence[Meeting]) -> list[Inputs]:
    """The inputs that each part holds: single ones first, then those of the operators."""
    holds = [frozenset({n}) for n in range(leaves)]
    for meeting in meetings:
        holds.append(frozenset().union(*(holds[part] for part in meeting.parts)))
    return holds


def tree_of(leaves: int, meetings: Sequence[Meeting]) -> Shape:
    """The shape that operators have, the last of which is the root."""
    trees: list[Shape] = list(range(leaves))
    for meeting in meetings:
        trees.append(tuple(trees[part] for part in meeting.parts))
    return trees[-1]
