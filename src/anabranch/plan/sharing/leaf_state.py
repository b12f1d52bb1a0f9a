"""The rows of one stream that lie at a port of a join, and what of them another port can go on with.

Two queries need not be equal for the state of one to serve the other. What lies at a port is described by where its
rows come from, the conditions they have met, the window that decides how long they are kept, and the columns that are
kept of them. So it can be said what another port lacks there (`fit`): nothing, a column, or rows; and which rows are
too many.

Conditions are compared as they are written: that `v > 5` says more than `v > 3` is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.plan.names import Names, unquoted
from anabranch.plan.network import Network

# Per port, what its rows are hashed on: texts of the columns of the key, and the types they are compared in.
Hashed = Sequence[tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class LeafState:
    """What lies at a port that rows of a stream come to.

    `origin` says which rows come, before any condition: sources and their lateness; they are there `since` their query
    began. Rows have met all `conditions`, among them that they have a key. They have an event time if they are `timed`,
    and were dropped behind the watermark if `late`. `hashed` are columns of the key with the types in which they are
    compared.
    """

    port: int
    alias: str
    origin: str
    since: int
    conditions: frozenset[str]
    columns: frozenset[str]
    window: int | None
    timed: bool
    late: bool
    hashed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """How the state at the port `of` fits another one.

    Rows there have to be selected by `conditions`; those that did not meet what is in `dropped` are not there. Columns
    in `lacking` are read and not kept. What is not `rehashed` is hashed on the same key already.
    """

    of: LeafState
    conditions: tuple[str, ...]
    dropped: tuple[str, ...]
    lacking: tuple[str, ...]
    rehashed: bool
    untimed: bool

    @property
    def is_usable(self) -> bool:
        """Whether all that is read of the rows is there."""
        return not self.lacking and not self.untimed

    @property
    def is_listed(self) -> bool:
        """Whether the rows are there as they are needed."""
        return self.is_usable and not self.conditions and not self.rehashed


def leaf_states(network: Network, hashed: Hashed, *, shadow: bool) -> list[LeafState]:
    """What lies at the ports of joins that rows of streams come to, those of a shadow or all others."""
    leaves = []
    for number, (n, p) in enumerate(network.ports):
        operator = network.operators[n]
        port = operator.ports[p]
        if operator.grouping is not None or network.operator_of(port.node) is not None:
            continue
        entry = network.inputs[port.node]
        if entry.shadow is not shadow or entry.entry.is_derived:
            continue
        content: dict[str, Any] = json.loads(port.state.identity.holds[0])
        origin = json.dumps([content["sources"], content["lateness (us)"]])
        leaves.append(
            LeafState(
                number,
                entry.entry.alias.lstrip(":"),
                origin,
                content["since"],
                frozenset(entry.entry.conditions) | {f"{key} IS NOT NULL" for key in entry.entry.key},
                frozenset(column for _, column in port.columns),
                entry.entry.window,
                entry.timed,
                entry.late,
                hashed[number],
            )
        )
    return leaves


def best_fit(needed: LeafState, there: Sequence[LeafState], since: int) -> Fit | None:
    """The state that serves a port best; None if nobody has rows of its stream `since` then."""
    fits = [fit(needed, state) for state in there if (state.origin, state.since) == (needed.origin, since)]

    def worth(one: Fit) -> tuple[bool, ...]:
        same_window = one.of.window == needed.window
        return one.is_usable, not one.dropped, same_window, one.of.alias == needed.alias, one.is_listed

    return max(fits, key=worth, default=None)


def fit(needed: LeafState, state: LeafState) -> Fit:
    """How a state fits a port whose rows come from the same streams."""
    rehashed = needed.hashed != state.hashed
    # What has the key's hash already has a key, whether or not the columns of the key are kept.
    conditions = sorted(needed.conditions - state.conditions)
    texts = [*conditions, *(text for text, _ in needed.hashed if rehashed)]
    read = needed.columns.union(*map(columns_of, texts))
    return Fit(
        state,
        tuple(conditions),
        tuple(sorted(state.conditions - needed.conditions)),
        tuple(sorted(read - state.columns)),
        rehashed,
        needed.timed and not state.timed,
    )


def columns_of(text: str) -> set[str]:
    """The columns that an expression over a stream reads."""
    names = Names(text)
    return {unquoted(names.tokens[n].text) for n in names.columns()}
