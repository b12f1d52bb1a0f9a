"""Arrange a logical query: give it an order of joins, for any shape, without parsing its text again.

Each condition goes to the first operator that has all it reads, or to the last if it reads no stream at all. Above a
join travel only the columns that the answer, conditions and keys there read. Of an input those are kept that any order
needs: in another one a row may have to be joined on other terms first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anabranch.plan.arrangement import Shape
from anabranch.plan.join_keys import KeyPlan, plan_keys
from anabranch.plan.query import Condition, ContinuousQuery, JoinInput, JoinOperator, LogicalInput, LogicalQuery, Term

# Per alias, the columns that travel above the join.
Needed = dict[str, set[str]]


def arranged(query: LogicalQuery, shape: Shape | None) -> ContinuousQuery:
    """The query, joined as the shape says, or as seems best if it is None. Raises `UnconnectedError` if parts of it
    have nothing in common."""
    plan = plan_keys(query.aliases, query.equalities, shape)
    needed: Needed = {alias: set() for alias in query.aliases}
    _need(needed, query.needed)
    operators = _operators(query, plan, needed)
    conditions = {entry.alias: list(entry.conditions) for entry in query.inputs}
    for left, right in plan.conditions:
        conditions[left.alias].append(f"{left.below} = {right.below}")
    for term in _non_null(plan, len(query.inputs)):
        conditions[term.alias].append(f"{term.below} IS NOT NULL")
    keys = _key_columns(query, plan)
    first_keys = {
        part: terms for joining in plan.operators for part, terms in zip(joining.parts, joining.keys, strict=True)
    }
    inputs = tuple(
        JoinInput(
            alias=entry.alias,
            stream=entry.stream,
            window=entry.window,
            key=tuple(term.below for term in first_keys[position]),
            conditions=tuple(dict.fromkeys(conditions[entry.alias])),
            columns=_kept(entry, needed[entry.alias] | keys[entry.alias], plan, several=len(query.inputs) > 2),
            sources=entry.sources,
        )
        for position, entry in enumerate(query.inputs)
    )
    return ContinuousQuery(
        text=query.text,
        inputs=inputs,
        classes=tuple(tuple((term.alias, term.below) for term in terms) for terms in plan.classes),
        operators=operators,
        outputs=query.outputs,
        grouping=query.grouping,
        derived=query.derived,
        logical=query,
    )


def rearranged(query: ContinuousQuery, shape: Shape | None) -> ContinuousQuery:
    """An arranged query in another order; what it is united with stays as it is."""
    assert query.logical is not None, "there is nothing to arrange without a join"
    return replace(arranged(query.logical, shape), united=query.united, cluster=query.cluster)


def _operators(query: LogicalQuery, plan: KeyPlan, needed: Needed) -> tuple[JoinOperator, ...]:
    """The operators from the root down, each with the conditions that it is the first to have all columns for.

    `needed` grows on the way: what an operator's conditions and the keys above it read has to be carried to it.
    """
    leaves = len(query.inputs)
    aliases: list[frozenset[str]] = [frozenset({alias}) for alias in query.aliases]
    for joining in plan.operators:
        aliases.append(frozenset().union(*(aliases[part] for part in joining.parts)))
    decided: list[list[Condition]] = [[] for _ in plan.operators]
    for condition in query.conditions:
        lowest = (n for n in range(len(plan.operators)) if aliases[leaves + n] >= condition.aliases)
        # What reads no stream at all is decided where the answer is.
        decided[next(lowest) if condition.reads else -1].append(condition)
    operators = []
    for n in reversed(range(len(plan.operators))):
        joining = plan.operators[n]
        texts = [f"{left.above} = {right.above}" for left, right in joining.checks]
        texts += [condition.text for condition in decided[n]]
        for term in (term for pair in joining.checks for term in pair):
            needed[term.alias] |= term.columns
        for condition in decided[n]:
            _need(needed, condition.reads)
        carried = tuple(
            (entry.alias, column)
            for entry in query.inputs
            if entry.alias in aliases[leaves + n]
            for column in entry.columns
            if column in needed[entry.alias]
        )
        keys = tuple(
            tuple(term.below if part < leaves else term.above for term in terms)
            for part, terms in zip(joining.parts, joining.keys, strict=True)
        )
        operators.append(JoinOperator(joining.parts, joining.classes, keys, tuple(dict.fromkeys(texts)), carried))
        for part, terms in zip(joining.parts, joining.keys, strict=True):
            # What was joined on the same classes below has its hash already.
            rehashed = part >= leaves and set(plan.operators[part - leaves].classes) != set(joining.classes)
            for term in terms if rehashed else ():
                needed[term.alias] |= term.columns
    return tuple(reversed(operators))


def _non_null(plan: KeyPlan, leaves: int) -> list[Term]:
    """Terms that have to equal those of other streams but are in no key below: a row with a null there joins nothing.

    It is left out at once whatever the shape of the joins, so that the rows that count do not depend on it.
    """
    checked_already = {term for pair in plan.conditions for term in pair}
    for joining in plan.operators:
        for part, terms in zip(joining.parts, joining.keys, strict=True):
            checked_already |= set(terms) if part < leaves else set()
    shared = [terms for terms in plan.classes if len({term.alias for term in terms}) > 1]
    return [term for terms in shared for term in terms if term not in checked_already]


def _key_columns(query: LogicalQuery, plan: KeyPlan) -> Needed:
    """Per alias, what the terms read that other orders may join it on, or compare it with above a join.

    The hash says enough where there is one class. An alias that is connected to another one only, by one class, is
    always joined on that at first, and the other one stands for the class from there on.
    """
    shared = [terms for terms in plan.classes if len({term.alias for term in terms}) > 1]
    columns: Needed = {alias: set() for alias in query.aliases}
    for alias in query.aliases if len(shared) > 1 and len(query.aliases) > 2 else ():
        own = [terms for terms in shared if any(term.alias == alias for term in terms)]
        if len(own) > 1 or len({term.alias for terms in own for term in terms}) > 2:
            columns[alias].update(*(term.columns for terms in own for term in terms if term.alias == alias))
    return columns


def _kept(entry: LogicalInput, needed: set[str], plan: KeyPlan, *, several: bool) -> tuple[str, ...]:
    """The columns that an input keeps, in the stream's order: those `needed`, or one of its key if that is none.

    Joined rows are counted by a column. A join of this input with another one, of which no column is needed either, is
    the result of an operator in some orders. So each input has one that any order can take, where there are several.
    """
    if not needed and several:
        own = (term for terms in plan.classes for term in terms if term.alias == entry.alias)
        needed = {column for term in own for column in term.columns}
        return tuple(column for column in entry.columns if column in needed)[:1]
    return tuple(column for column in entry.columns if column in needed)


def shape_of(query: ContinuousQuery) -> Shape:
    """The shape of an arranged query: which parts meet, as a tree over the numbers of its inputs."""

    def shape(part: int) -> Shape:
        if part < len(query.inputs):
            return part
        return tuple(shape(below) for below in query.operators[part - len(query.inputs)].parts)

    return shape(query.root)


def _need(needed: Needed, columns: Iterable[tuple[str, str]]) -> None:
    for alias, column in columns:
        needed[alias].add(column)
