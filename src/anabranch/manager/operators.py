"""Operators as adaptations see them: what they are called, whether they can be spilled, and what moves together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.kernel.operator import SpillableOperator, answers_later
from anabranch.plan.network import Network
from anabranch.processor.tasks import ProcessorPlan


@dataclass(frozen=True, slots=True)
class Known:
    """An operator: its number, ports and family, a name for people, and its number among groupings, if it is one."""

    number: int
    name: str
    ports: tuple[int, ...]
    spillable: bool
    grouping: int | None
    unbounded: bool
    family: int
    answers_later: bool


def known_operators(network: Network, plan: ProcessorPlan, families: Sequence[int]) -> list[Known]:
    """The operators of a network, by number; `families` are theirs."""
    found = [
        Known(
            entry.number,
            _name(network, entry.number),
            entry.ports,
            isinstance(entry.operator, SpillableOperator) and entry.operator.can_spill,
            plan.groupings.index(entry.number) if entry.number in plan.groupings else None,
            entry.number not in plan.groupings and all(plan.windows[port] is None for port in entry.ports),
            families[entry.number],
            answers_later(entry.operator),
        )
        for number in plan.rounds
        for entry in number.operators
    ]
    return sorted(found, key=lambda operator: operator.number)


def _name(network: Network, n: int) -> str:
    aliases = [network.inputs[i].entry.alias for i in network.inputs_of(len(network.inputs) + n)]
    return f"{'join' if network.operators[n].grouping is None else 'groups'} of {', '.join(aliases)}"
