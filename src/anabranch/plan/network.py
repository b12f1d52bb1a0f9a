"""Several queries as one network of operators, in which what they have in common is there once.

An operator has ports. Through a port come the rows of a node: of an input (a stream occurrence) or of another operator.
What an operator gives may go to several ports and be the answer to several queries, each with conditions of its own on
it. State lies at ports. An operator's `identity` says all that its state depends on, so equal identities mean equal
state (`identity`); `assembly` puts networks together.

A sub-query that joins or groups is a block: operators whose rows, selected and projected, feed an input of the query
around it. So are the parts of a UNION ALL, whose rows are one answer.

Nodes are numbered: inputs first, then operators, each after all that it takes rows from.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.plan.query import ContinuousQuery, Grouping, JoinInput, Output, StreamSchema
from anabranch.plan.sharing.port_state import PortState

# An alias and a column of it; or, among the terms of a key, an expression over its columns.
Column = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A query that is to be answered, by a name; `since` tells which ones begin together.

    Only queries of one `track` share joins. A query that migrates to another plan gets a track of its own: its new
    operators are there beside its old ones for a while. As long as it is a shadow, `shadow_of` that query, nobody asks
    for its answers.

    A query that was changed while it ran may lack rows from before, or have others: `lacking` is the track that it was
    changed with then, and 0 if its state has the rows that came since it began.
    """

    name: str
    query: ContinuousQuery
    since: int = 0
    track: int = 0
    shadow_of: str | None = None
    lacking: int = 0

    @property
    def shadow(self) -> bool:
        """Whether nobody asks for its answers."""
        return self.shadow_of is not None

    @property
    def rows_since(self) -> int:
        """A number for the time from which on rows are in the state; equal ones mean the same rows."""
        return -self.lacking if self.lacking else self.since


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows of an operator that feed an input or an answer: those that meet `conditions`, projected by `outputs`."""

    node: int
    conditions: tuple[str, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A stream occurrence. Its event time is read only if it is `timed`; rows can be too late only if `late`.

    `feeds` are the rows of blocks that feed it, per source; None for a source that is a stream. An input of a `shadow`
    has the same rows as another one, and is not counted.
    """

    entry: JoinInput
    timed: bool
    late: bool
    feeds: tuple[Feed | None, ...] = ()
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class Port:
    """Where rows of a node enter an operator: those that meet `conditions`, exchanged by `keys`. `columns` are stored.

    Rows of an input have met its own conditions, and have its key and columns. `state` is what lies here, whatever the
    tree around it (`port_state`); `ranks` are the aliases of a join's rows in the order in which the state names them.
    """

    node: int
    keys: tuple[str, ...]
    state: PortState
    conditions: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    ranks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A join of all its ports, or a grouping of what comes in through its only one.

    `terms` are per column of a join's key: all that is compared with each other there. `columns` is what a join gives.
    """

    identity: str
    ports: tuple[Port, ...]
    terms: tuple[tuple[Column, ...], ...] = ()
    columns: tuple[Column, ...] = ()
    grouping: Grouping | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query: rows of one node, selected and projected; a UNION ALL has a branch for each of its
    SELECTs."""

    name: str
    branches: tuple[Feed, ...]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the answer."""
        return self.branches[0].outputs


@dataclass(frozen=True, slots=True)
class Network:
    """All operators of a run and their inputs. Aliases are unique in it; `derived` are the streams that sub-queries
    make.

    `classes` are the terms that queries call equal, whether they are keys or checked above a join.
    """

    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    answers: tuple[Answer, ...]
    derived: tuple[StreamSchema, ...] = ()
    classes: tuple[tuple[Column, ...], ...] = ()

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """All ports by number: the operator's number, and which of its ports it is."""
        return tuple((n, p) for n, operator in enumerate(self.operators) for p in range(len(operator.ports)))

    def operator_of(self, node: int) -> int | None:
        """The number of the operator whose rows a node has; None for an input."""
        return node - len(self.inputs) if node >= len(self.inputs) else None

    def inputs_of(self, node: int) -> tuple[int, ...]:
        """The inputs whose rows make up the rows of a node; inputs of blocks below are not listed."""
        n = self.operator_of(node)
        return (node,) if n is None else tuple(i for port in self.operators[n].ports for i in self.inputs_of(port.node))

    def operators_of(self, node: int) -> tuple[int, ...]:
        """The operators that the rows of a node have gone through, its own last; those of blocks below are not
        listed."""
        n = self.operator_of(node)
        if n is None:
            return ()
        return (*(m for port in self.operators[n].ports for m in self.operators_of(port.node)), n)

    def joined_with(self, node: int) -> set[int]:
        """The inputs that the rows of a node are joined with, in any of the queries that they are part of."""
        above = {n for n, p in (self.ports[number] for number in self.consumers(node))}
        joins = [len(self.inputs) + n for n in above if self.operators[n].grouping is None]
        return set(self.inputs_of(node)).union(*(self.joined_with(join) for join in joins))

    def is_shadow(self, n: int) -> bool:
        """Whether an operator belongs to a shadow."""
        return any(self.inputs[i].shadow for i in self.inputs_of(len(self.inputs) + n))

    def joins_of(self, name: str) -> tuple[int, ...]:
        """The joins that a query's rows go through, whoever else they are for; of a UNION ALL, those of its first
        SELECT. Those of blocks below are not listed."""
        answer = next(answer for answer in self.answers if answer.name == name)
        return tuple(n for n in self.operators_of(answer.branches[0].node) if self.operators[n].grouping is None)

    def consumers(self, node: int) -> list[int]:
        """The numbers of the ports that take rows of a node directly, not by way of an input."""
        return [number for number, (n, p) in enumerate(self.ports) if self.operators[n].ports[p].node == node]
