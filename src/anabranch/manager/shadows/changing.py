"""Which state a changed query goes on with, what of it is lacking, and what cannot be done.

The new query is a shadow beside the old one (`filling`), but its inputs may have other windows, conditions and columns.
A port of a stream is filled from the state that fits it best (`plan/sharing/leaf_state`); joined rows are listed only
if they are the same rows, and computed otherwise.

Rows are gone that the old query had no use for any more. What the new one needs is known by the watermarks at the
change: a row that is older than its port's purge threshold meets nothing that is still to come. So the state of a port
is complete if its own threshold, behind which rows may be gone, is not past the one of the port that it fills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.manager.shadows.filling import Filling, fed_ports
from anabranch.plan.network import Network
from anabranch.plan.sharing.leaf_state import Fit, LeafState
from anabranch.plan.sharing.query_change import Fate, StateChange
from anabranch.plan.watermark import Thresholds

# By port of the shadow that rows of a stream come to: the state that fits it best.
Fits = Mapping[int, Fit | None]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """How the state of a changed query is filled, what becomes of it port by port, and what is refused.

    `late_rows` are there if rows of the state came so late that the new query would not have taken them.
    """

    filling: Filling
    states: tuple[StateChange, ...]
    refused: tuple[str, ...]
    late_rows: bool = False

    @property
    def is_as_if_new(self) -> bool:
        """Whether the state has the rows that the new query would have if it had been answered all the time."""
        return not self.late_rows and all(state.is_complete for state in self.states)


def planned_change(
    network: Network,
    leaves: Sequence[LeafState],
    fits: Fits,
    limits: Thresholds,
    rows: Mapping[int, int],
    fallible: frozenset[str] = frozenset(),
) -> PlannedChange:
    """Plan how the shadow in a network is filled, given what is dead at each port and the `rows` that lie there.

    What is `fallible` fails on some rows, so it cannot be evaluated on those that are in the state.
    """
    listed: dict[int, int] = {}
    rehashed: dict[int, int] = {}
    states: list[StateChange] = []
    refused: list[str] = []
    for leaf in leaves:
        one = fits[leaf.port]
        if one is None:
            states.append(StateChange(leaf.alias, Fate.EMPTY, 0))
            continue
        refused += _problems(leaf, one, fallible)
        (listed if one.is_listed else rehashed)[leaf.port] = one.of.port
        states.append(_state_change(network, leaf, one, limits, rows[one.of.port]))
    computed, joined = _joined(network, limits, listed, rows)
    fed = fed_ports(network, computed, rehashed)
    selected = {port: fit.conditions for port, fit in fits.items() if fit is not None and fit.conditions}
    same_key = frozenset(port for port in rehashed if (fit := fits[port]) is not None and not fit.rehashed)
    filling = Filling(listed, rehashed, fed, frozenset(computed), selected, same_key)
    late_rows = any(leaf.late and fit is not None and not fit.of.late for leaf in leaves for fit in [fits[leaf.port]])
    return PlannedChange(filling, (*states, *joined), tuple(refused), late_rows)


def _problems(leaf: LeafState, fit: Fit, fallible: frozenset[str]) -> list[str]:
    """Why a state cannot serve a port."""
    problems = []
    if fit.lacking:
        has = ", ".join(sorted(fit.of.columns)) or "no column"
        problems.append(
            f"of {leaf.alias} the new query reads {', '.join(fit.lacking)}, but its state has {has}; add() the new "
            "query beside the old one, or start it with a new checkpoint"
        )
    if fit.untimed:
        problems.append(
            f"the new query has windows, but no event times were kept of {leaf.alias}, since no stream of the old one "
            "has a window; add() the new query beside the old one"
        )
    failing = [text for text in (*fit.conditions, *(key for key, _ in leaf.hashed if fit.rehashed)) if text in fallible]
    if failing:
        problems.append(
            f"{failing[0]} can fail on a row of {leaf.alias}, so it cannot be evaluated on those in the state"
        )
    return problems


def _state_change(network: Network, leaf: LeafState, fit: Fit, limits: Thresholds, rows: int) -> StateChange:
    """What becomes of the state of a stream."""
    fate = Fate.HASHED_ANEW if fit.rehashed else Fate.SELECTED if fit.conditions else Fate.KEPT
    gone, late = limits.purge[fit.of.port], fit.of.late and not leaf.late
    if not _lacks(limits, leaf.port, fit.of.port):
        gone = None
    if late:
        n, p = network.ports[fit.of.port]
        mark = limits.marks[network.operators[n].ports[p].node]
        gone = max((time for time in (gone, mark) if time is not None), default=None)
    return StateChange(leaf.alias, fate, rows, gone, fit.dropped, fit.conditions, late and gone is not None)


def _lacks(limits: Thresholds, port: int, of: int) -> bool:
    """Whether rows may be gone at a port that another one needs."""
    gone, needed = limits.purge[of], limits.purge[port]
    return gone is not None and (needed is None or needed < gone)


def _joined(
    network: Network, limits: Thresholds, listed: dict[int, int], rows: Mapping[int, int]
) -> tuple[list[int], list[StateChange]]:
    """The ports of joined rows of the shadow that have to be computed; those that need not are `listed`."""
    held = {
        network.operators[n].ports[p].state.identity: number
        for number, (n, p) in enumerate(network.ports)
        if network.operators[n].grouping is None and not network.is_shadow(n)
    }
    computed: list[int] = []
    states = []
    computing: set[int] = set()
    for number, (n, p) in enumerate(network.ports):
        port = network.operators[n].ports[p]
        below = network.operator_of(port.node)
        if not network.is_shadow(n) or below is None:
            continue
        of = held.get(port.state.identity)
        inside = [network.inputs[i].entry.alias.lstrip(":") for i in network.inputs_of(port.node)]
        if (
            of is not None
            and below not in computing
            and _serves(network, of, number)
            and not _lacks(limits, number, of)
        ):
            listed[number] = of
            states.append(StateChange(" ".join(inside), Fate.KEPT, rows[of]))
        else:
            computed.append(number)
            computing.add(n)
            states.append(StateChange(" ".join(inside), Fate.COMPUTED, 0))
    return computed, states


def _serves(network: Network, of: int, port: int) -> bool:
    """Whether joined rows at a port have the columns that another one needs."""
    there, needed = (network.operators[n].ports[p].state for n, p in (network.ports[of], network.ports[port]))
    return there.serves(needed)
