"""The distribution table (paper 5, section 5.1): operator -> processors, with state, rates and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.costs.cost_table import CostModel, cost_table, text_of
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import OperatorShape
from anabranch.manager.snapshot import Snapshot
from anabranch.manager.tiers.clusters import Clusters
from anabranch.observe.numbers import format_bytes
from anabranch.plan.placement import placement_text
from anabranch.state.spill import spilled_bytes


@dataclass(frozen=True, slots=True)
class AllocatedOperator:
    """An operator: the processors that have groups of it, and its round, counted from 1. `fused_with` are the others of
    its family. It works for `queries`, and is in a `cluster` of processors if there are some.

    Its active state has so many `rows` and `bytes`. In the last step `rows_in` came to it and `rows_out` came out.
    `cost` is that on all processors together, in the unit of the cost model.
    """

    operator: str
    processors: tuple[int, ...]
    where: str
    round: int
    fused_with: tuple[str, ...]
    rows: int
    bytes: int
    spilled_bytes: int
    rows_in: int
    rows_out: int
    cost: float
    queries: tuple[str, ...] = ()
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class DistributionTable:
    """All operators of a run, and what each processor has to bear by a cost model; `str` makes a table of it."""

    operators: tuple[AllocatedOperator, ...]
    costs: Mapping[int, float]
    cost_texts: Mapping[int, str]

    def __getitem__(self, operator: str) -> AllocatedOperator:
        """The operator of a name."""
        for entry in self.operators:
            if entry.operator == operator:
                return entry
        known = [entry.operator for entry in self.operators]
        raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), known)}")

    def __iter__(self) -> Iterator[AllocatedOperator]:
        """All operators."""
        return iter(self.operators)

    def __len__(self) -> int:
        """How many operators there are."""
        return len(self.operators)

    def __str__(self) -> str:
        """One line per operator, and one for the costs of processors."""
        head = ("operator", "where", "round", "state", "spilled", "rows in", "rows out", "cost")
        lines = [
            (
                entry.operator,
                entry.where if entry.cluster is None else f"{entry.where}, cluster {entry.cluster!r}",
                str(entry.round),
                format_bytes(entry.bytes),
                format_bytes(entry.spilled_bytes),
                f"{entry.rows_in:,}",
                f"{entry.rows_out:,}",
                f"{entry.cost:.3g}",
            )
            for entry in self.operators
        ]
        costs = ", ".join(f"processor {p} {text}" for p, text in self.cost_texts.items())
        return "\n".join([*_aligned([head, *lines]), f"costs: {costs}"])


def distribution_table(
    snapshot: Snapshot,
    distribution: Distribution,
    rounds: Sequence[int],
    model: CostModel,
    clusters: Clusters | None = None,
) -> DistributionTable:
    """The table of a distribution; rates are those of the step that the snapshot was made after."""
    costs = cost_table(model, snapshot)
    operators = []
    for shape in snapshot.plan.operators:
        n, placement = shape.number, distribution.placements[shape.number]
        views = [one for view in snapshot.processors for one in view.operators if one.operator == n]
        operators.append(
            AllocatedOperator(
                operator=shape.name,
                processors=tuple(sorted({p for group in _groups(distribution, n) for p in group})),
                where=placement_text(placement, distribution.processors),
                round=rounds[n] + 1,
                fused_with=tuple(
                    other.name
                    for other in snapshot.plan.operators
                    if other.family == shape.family and other.number != n
                ),
                rows=_rows(distribution, shape),
                bytes=sum(view.active_bytes for view in views),
                spilled_bytes=_spilled(distribution, n),
                rows_in=sum(view.rows for view in views),
                rows_out=sum(view.results for view in views),
                cost=sum(of.get(n, 0.0) for of in costs.costs.values()),
                queries=shape.queries,
                cluster=None if clusters is None else clusters.of_processors(placement),
            )
        )
    by_processor = {p: costs.cost(p) for p in costs.processors}
    return DistributionTable(
        tuple(operators), by_processor, {p: text_of(model, cost) for p, cost in by_processor.items()}
    )


def _groups(distribution: Distribution, operator: int) -> Iterator[tuple[int, ...]]:
    """The processors of each group of an operator."""
    routing = distribution.routings[operator]
    return map(routing.hosts, range(distribution.groups))


def _rows(distribution: Distribution, operator: OperatorShape) -> int:
    return sum(manifest.spines[port].rows for manifest in distribution.manifests for port in operator.ports)


def _spilled(distribution: Distribution, operator: int) -> int:
    states = (manifest.operators[operator] for manifest in distribution.manifests)
    return sum(int(spilled_bytes(state.generations, distribution.groups).sum()) for state in states)


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of text: the first two to the left, numbers to the right."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    for line in lines:
        cells = (
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
