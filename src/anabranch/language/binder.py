"""A CQL text bound to the registered streams: the whole way from text to `ContinuousQuery`.

Each conjunct of ON and WHERE is an equality between two streams, a condition on one stream, or something else that
joined rows have to meet. In which order streams are joined, and what is decided where, is said by `plan/join_order`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.errors import QueryError
from anabranch.language.clauses import Statement, take_apart
from anabranch.language.conjuncts import conjuncts, equality, is_null_safe_equality
from anabranch.language.derived import Derived, derive, flattened, refuse_captured, united_sources
from anabranch.language.dialect import read
from anabranch.language.expressions import Expression, bind
from anabranch.language.grouping import (
    EACH_BATCH,
    EACH_TUPLE,
    FUNCTIONS,
    GroupedAnswer,
    check_grouped,
    is_grouped,
    range_of,
)
from anabranch.language.items import Item, read_items
from anabranch.language.scope import ColumnRef, Scope, match, open_scope
from anabranch.language.shape import read_shape
from anabranch.language.source import SourceText
from anabranch.plan.arrangement import UnconnectedError
from anabranch.plan.join_order import arranged
from anabranch.plan.query import (
    Application,
    Condition,
    ContinuousQuery,
    Equality,
    Grouping,
    JoinInput,
    LogicalInput,
    LogicalQuery,
    Output,
    Selection,
    Source,
    StreamSchema,
    Term,
)
from anabranch.plan.shape_text import AUTO

# Per alias: the columns that travel above the join, and the conditions below it.
Needed = dict[str, set[str]]
Predicates = dict[str, list[str]]


def parse_query(
    text: str, streams: Mapping[str, StreamSchema], joins: str = AUTO, emit: str = EACH_TUPLE
) -> ContinuousQuery:
    """The query that the text describes over the streams, or a `QueryError` that says what to change.

    `joins` is the shape of its joins (`language/shape`), `emit` how often a group is answered: at every "tuple", or
    once in every "batch".
    """
    if emit not in (EACH_TUPLE, EACH_BATCH):
        raise QueryError(f"emit must be {EACH_TUPLE!r} or {EACH_BATCH!r}, not {emit!r}")
    source, tree = read(text)
    statements = take_apart(source, tree)
    if len(statements) == 1:
        return _bind(text, source, statements[0], streams, joins, emit)
    if joins != AUTO or emit != EACH_TUPLE:
        raise QueryError("joins= and emit= are for a query of one SELECT, not for UNION ALL")

    def bind_block(statement: Statement) -> ContinuousQuery:
        return _bind(text, source, statement, streams)

    return _united(source, united_sources(source, statements, streams, bind_block))


def _united(source: SourceText, sources: Sequence[Source]) -> ContinuousQuery:
    """The answers of blocks as one."""
    flat = [flattened(fed) for fed in sources]
    blocks = [block for block in flat if block is not None]
    if len(blocks) < len(flat):
        hint = "join it with another one or group it, or use Spark itself"
        raise source.unsupported("a SELECT from one stream that neither joins nor groups, as an answer", hint=hint)
    return replace(blocks[0], united=tuple(blocks[1:]))


def _bind(
    text: str,
    source: SourceText,
    statement: Statement,
    streams: Mapping[str, StreamSchema],
    joins: str = AUTO,
    emit: str = EACH_TUPLE,
) -> ContinuousQuery:
    """A SELECT as a query."""
    grouped = is_grouped(statement)
    application = _application(source, statement, streams)
    if application is not None:
        return _over_an_operator(text, source, statement, streams, application)
    derived = derive(source, statement, streams, lambda block: _bind(text, source, block, streams))
    statement, sources = derived.statement, derived.sources
    if (
        not grouped
        and len(statement.items) == 1
        and any(fed.block for fed in sources.get(statement.items[0].stream, ()))
    ):
        if statement.items[0].window is not None:
            span = statement.items[0].window_span
            raise source.unsupported("a window on a sub-query that is neither joined nor grouped", span)
        return _selected(source, statement, derived)
    scope = open_scope(source, statement.items, derived.streams, single=grouped)
    answer = GroupedAnswer(statement, scope) if grouped else None
    outputs, needed = _outputs(read_items(statement, scope, FUNCTIONS if grouped else ()), scope, answer)
    grouping = None
    if answer is not None:
        grouping = answer.grouping(once=emit == EACH_BATCH)
        check_grouped(scope, statement.items, sources, streams)
        for expression in answer.reads if len(scope.aliases) > 1 else ():
            _need(needed, expression.refs.values())
    if emit == EACH_BATCH and (grouping is None or grouping.distinct):
        raise QueryError("emit='batch' is for GROUP BY: joins and DISTINCT are answered with every row")
    equalities, predicates, residual = _classify(statement, scope)
    shape = read_shape(joins, scope.aliases)
    if len(scope.aliases) == 1:
        query = _over_one_stream(text, statement, scope, outputs, grouping, equalities, predicates, residual)
        return replace(query, inputs=_fed(query.inputs, sources), derived=derived.made)
    logical = LogicalQuery(
        text=text,
        inputs=tuple(
            LogicalInput(
                alias=alias,
                stream=stream.name,
                window=range_of(item.window),
                conditions=_distinct(predicates[alias]),
                columns=stream.columns,
                sources=sources.get(stream.name, (Source(stream.name),)),
            )
            for item, (alias, stream) in zip(statement.items, scope.streams.items(), strict=True)
        ),
        equalities=tuple(equalities),
        conditions=tuple(Condition(conjunct.above, _reads(conjunct)) for conjunct in residual),
        needed=tuple((alias, column) for alias, columns in needed.items() for column in sorted(columns)),
        outputs=outputs,
        grouping=grouping,
        derived=derived.made,
    )
    try:
        return arranged(logical, shape)
    except UnconnectedError as error:
        raise _not_connected(source, scope.aliases, error) from None


def _selected(source: SourceText, statement: Statement, derived: Derived) -> ContinuousQuery:
    """Selection and projection of the answers of blocks."""
    scope = open_scope(source, statement.items, derived.streams, single=True)
    items = read_items(statement, scope)
    outputs = tuple(Output(item.name, item.below) for item in items)
    parts = [part for condition in statement.conditions for part in conjuncts(bind(condition, scope))]
    refuse_captured(source, [*parts, *(item.expression for item in items if item.expression is not None)])
    step = Selection(_distinct([part.below for part in parts]), outputs)
    fed = derived.sources[statement.items[0].stream]
    return _united(source, [replace(entry, steps=(*entry.steps, step)) for entry in fed])


def _application(source: SourceText, statement: Statement, streams: Mapping[str, StreamSchema]) -> Application | None:
    """The application of a user's operator that makes the stream in FROM, if it stands there alone; otherwise None."""
    item = statement.items[0]
    name = match(item.stream, streams) if not item.branches else None
    application = streams[name].application if name is not None else None
    if application is None or len(statement.items) > 1 or is_grouped(statement):
        return None
    if item.window is not None:
        hint = "how long it keeps rows is said where it is registered"
        raise source.unsupported("a window on what an operator gives", item.window_span or item.span, hint)
    return application


def _over_an_operator(
    text: str, source: SourceText, statement: Statement, streams: Mapping[str, StreamSchema], application: Application
) -> ContinuousQuery:
    """Selection and projection of the results of a user's operator."""
    scope = open_scope(source, statement.items, streams, single=True)
    outputs = tuple(Output(item.name, item.below) for item in read_items(statement, scope))
    parts = [part for condition in statement.conditions for part in conjuncts(bind(condition, scope))]
    conditions = _distinct([part.below for part in parts])
    grouping = Grouping(application.key, (), conditions, applied=application.applied)
    over = application.over
    entry = JoinInput(over, over, application.retention, application.key, (), (), (Source(over),))
    return ContinuousQuery(text, (entry,), (), (), outputs, grouping)


def _fed(inputs: Sequence[JoinInput], sources: Mapping[str, tuple[Source, ...]]) -> tuple[JoinInput, ...]:
    """The inputs with their sources: by themselves they are fed by the stream they are called after."""
    return tuple(replace(entry, sources=sources.get(entry.stream, (Source(entry.stream),))) for entry in inputs)


def _over_one_stream(
    text: str,
    statement: Statement,
    scope: Scope,
    outputs: tuple[Output, ...],
    grouping: Grouping | None,
    equalities: list[Equality],
    predicates: Predicates,
    residual: list[Expression],
) -> ContinuousQuery:
    """A query without a join: all its conditions are decided before anything is exchanged."""
    assert grouping is not None, "the scope has let one stream pass"
    (alias, stream), (item,) = next(iter(scope.streams.items())), statement.items
    for condition in residual:
        if condition.captured:
            raise scope.source.unsupported("a lambda's variable that is called as a column", condition.span)
    conditions = [f"{left.below} = {right.below}" for left, right in equalities]
    conditions += [*predicates[alias], *(condition.below for condition in residual)]
    entry = JoinInput(alias, stream.name, range_of(item.window), grouping.keys, _distinct(conditions), ())
    return ContinuousQuery(text, (entry,), (), (), outputs, grouping)


def _classify(statement: Statement, scope: Scope) -> tuple[list[Equality], Predicates, list[Expression]]:
    """The equalities between terms, the conditions on one alias, and the rest."""
    equalities = [(_column_term(left), _column_term(right)) for left, right in scope.merged]
    predicates: Predicates = {alias: [] for alias in scope.aliases}
    residual: list[Expression] = []
    for condition in statement.conditions:
        for conjunct in conjuncts(bind(condition, scope)):
            if len(conjunct.aliases) > 1 and is_null_safe_equality(conjunct):
                hint = "join on =, which leaves out nulls"
                raise scope.source.unsupported("<=> between streams", conjunct.span, hint)
            pair = _equality_of_terms(conjunct)
            if pair is not None:
                equalities.append(pair)
            elif len(conjunct.aliases) == 1 and not conjunct.captured:
                predicates[conjunct.aliases[0]].append(conjunct.below)
            else:
                residual.append(conjunct)
    return equalities, predicates, residual


def _equality_of_terms(conjunct: Expression) -> Equality | None:
    sides = equality(conjunct)
    if sides is None or conjunct.captured or any(len(side.aliases) != 1 for side in sides):
        return None
    left, right = (
        Term(side.aliases[0], side.below, side.above, frozenset(ref.column for ref in side.refs.values()))
        for side in sides
    )
    return left, right


def _reads(conjunct: Expression) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((ref.alias, ref.column) for ref in conjunct.refs.values()))


def _column_term(ref: ColumnRef) -> Term:
    return Term(ref.alias, ref.below, ref.above, frozenset({ref.column}))


def _not_connected(source: SourceText, aliases: tuple[str, ...], error: UnconnectedError) -> QueryError:
    """There are streams that no equality connects; say which ones belong together."""
    parts = [_names(aliases[n] for n in sorted(part)) for part in error.parts]
    if all(len(part) == 1 for part in error.parts):
        message = "a join without an equality between its streams"
        return source.unsupported(message, hint=f"connect {_names(parts)} by a key, as in a.k = b.k")
    hint = f"no equality connects {'; '.join(parts[:-1])} with {parts[-1]}; connect them by a key, as in a.k = b.k"
    return source.unsupported("a cross join", hint=hint)


def _outputs(items: list[Item], scope: Scope, answer: GroupedAnswer | None) -> tuple[tuple[Output, ...], Needed]:
    needed: Needed = {alias: set() for alias in scope.aliases}
    outputs: list[Output] = []
    for item in items:
        if answer is None:
            outputs.append(Output(item.name, item.above))
            _need(needed, item.refs)
        elif item.expression is None:
            raise scope.source.unsupported("* with GROUP BY or DISTINCT", hint="list the columns")
        else:
            outputs.append(Output(item.name, answer.output(item.expression)))
    return tuple(outputs), needed


def _need(needed: Needed, refs: Iterable[ColumnRef]) -> None:
    for ref in refs:
        needed[ref.alias].add(ref.column)


def _distinct(conditions: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(conditions))


def _names(aliases: Iterable[str]) -> str:
    names = list(aliases)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
