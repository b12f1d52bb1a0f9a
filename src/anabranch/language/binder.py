"""A CQL text bound to the registered streams: the whole way from text to `ContinuousQuery`.

In which order streams are joined, and which condition is decided where, is up to `plan/join_order`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.errors import QueryError
from anabranch.language.clauses import Statement, take_apart
from anabranch.language.conditions import Conjuncts, Predicates, classify
from anabranch.language.conjuncts import conjuncts
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
    Grouping,
    JoinInput,
    LogicalInput,
    LogicalQuery,
    Output,
    Selection,
    Source,
    StreamSchema,
    quote,
)
from anabranch.plan.shape_text import AUTO

# Per alias: the columns that travel above the join.
Needed = dict[str, set[str]]


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
    application = _application(source, statement, streams)
    if application is not None:
        return _over_an_operator(text, source, statement, streams, application)
    derived = derive(source, statement, streams, lambda block: _bind(text, source, block, streams))
    statement = derived.statement
    if _only_selects(statement, derived):
        return _selected(source, statement, derived)
    grouped = is_grouped(statement)
    scope = open_scope(source, statement.items, derived.streams, single=grouped)
    answer = GroupedAnswer(statement, scope) if grouped else None
    outputs, needed = _outputs(read_items(statement, scope, FUNCTIONS if grouped else ()), scope, answer)
    grouping = _grouping(statement, scope, answer, derived, streams, needed, emit)
    classified = classify(statement, scope)
    shape = read_shape(joins, scope.aliases)
    if len(scope.aliases) == 1:
        query = _over_one_stream(text, statement, scope, outputs, grouping, classified)
        return replace(query, inputs=_fed(query.inputs, derived.sources), derived=derived.made)
    logical = LogicalQuery(
        text=text,
        inputs=_logical_inputs(statement, scope, derived, classified.predicates),
        equalities=tuple(classified.equalities),
        conditions=tuple(Condition(conjunct.above, _reads(conjunct)) for conjunct in classified.residual),
        needed=tuple((alias, column) for alias, columns in needed.items() for column in sorted(columns)),
        outputs=outputs,
        grouping=grouping,
        derived=derived.made,
    )
    try:
        return arranged(logical, shape)
    except UnconnectedError as error:
        raise _not_connected(source, scope.aliases, error) from None


def _only_selects(statement: Statement, derived: Derived) -> bool:
    """Whether a SELECT only selects and projects the answer of a sub-query."""
    item = statement.items[0]
    if is_grouped(statement) or len(statement.items) > 1:
        return False
    return any(fed.block for fed in derived.sources.get(item.stream, ()))


def _grouping(
    statement: Statement,
    scope: Scope,
    answer: GroupedAnswer | None,
    derived: Derived,
    streams: Mapping[str, StreamSchema],
    needed: Needed,
    emit: str,
) -> Grouping | None:
    """The grouping of a SELECT, if it groups; the columns that it reads of joined rows are added to the `needed`."""
    grouping = None
    if answer is not None:
        grouping = answer.grouping(once=emit == EACH_BATCH)
        check_grouped(scope, statement.items, derived.sources, streams)
        for expression in answer.reads if len(scope.aliases) > 1 else ():
            _need(needed, expression.refs.values())
    if emit == EACH_BATCH and (grouping is None or grouping.distinct):
        raise QueryError("emit='batch' is for GROUP BY: joins and DISTINCT are answered with every row")
    return grouping


def _logical_inputs(
    statement: Statement, scope: Scope, derived: Derived, predicates: Predicates
) -> tuple[LogicalInput, ...]:
    """The inputs of a join, in the order of FROM."""
    return tuple(
        LogicalInput(
            alias=alias,
            stream=stream.name,
            window=range_of(item.window),
            conditions=_distinct(predicates[alias]),
            columns=stream.columns,
            sources=derived.sources.get(stream.name, (Source(stream.name),)),
        )
        for item, (alias, stream) in zip(statement.items, scope.streams.items(), strict=True)
    )


def _selected(source: SourceText, statement: Statement, derived: Derived) -> ContinuousQuery:
    """Selection and projection of the answers of blocks."""
    if statement.items[0].window is not None:
        span = statement.items[0].window_span
        raise source.unsupported("a window on a sub-query that is neither joined nor grouped", span)
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
    """Selection and projection of the results of a user's operator.

    What it is applied to is a stream, or a block: the results of another operator.
    """
    scope = open_scope(source, statement.items, streams, single=True)
    outputs = tuple(Output(item.name, item.below) for item in read_items(statement, scope))
    parts = [part for condition in statement.conditions for part in conjuncts(bind(condition, scope))]
    conditions = _distinct([part.below for part in parts])
    grouping = Grouping(application.key, (), conditions, applied=application.applied)
    over = application.over
    item = replace(statement.items[0], stream=over, alias=over)
    derived = derive(source, Statement((item,), (), ()), streams, lambda block: _bind(text, source, block, streams))
    stream = derived.statement.items[0].stream
    sources = derived.sources.get(stream, (Source(over),))
    key = application.key
    if derived.made:
        schema = replace(derived.made[0], name=over)
        key = tuple(_bound_key(part, schema) for part in key)
        grouping = replace(grouping, keys=key)
    entry = JoinInput(over, stream, application.retention, key, (), (), sources)
    return ContinuousQuery(text, (entry,), (), (), outputs, grouping, derived.made)


def _bound_key(key: str, stream: StreamSchema) -> str:
    """An expression over a stream with its columns as Spark SQL identifiers, so that others can be put in their
    places."""
    # A comment in the key ends with its line.
    source, tree = read(f"SELECT {key}\n AS key FROM {quote(stream.name)}")
    statements = take_apart(source, tree)
    scope = open_scope(source, statements[0].items, {stream.name: stream}, single=True)
    items = read_items(statements[0], scope)
    if len(statements) > 1 or len(items) > 1 or statements[0].conditions:
        raise QueryError(f"the key {key!r} is not one expression; a key of several is a list, such as key=['k', 'v']")
    return items[0].below


def _fed(inputs: Sequence[JoinInput], sources: Mapping[str, tuple[Source, ...]]) -> tuple[JoinInput, ...]:
    """The inputs with their sources: by themselves they are fed by the stream they are called after."""
    return tuple(replace(entry, sources=sources.get(entry.stream, (Source(entry.stream),))) for entry in inputs)


def _over_one_stream(
    text: str,
    statement: Statement,
    scope: Scope,
    outputs: tuple[Output, ...],
    grouping: Grouping | None,
    classified: Conjuncts,
) -> ContinuousQuery:
    """A query without a join: all its conditions are decided before anything is exchanged."""
    assert grouping is not None, "the scope has let one stream pass"
    (alias, stream), (item,) = next(iter(scope.streams.items())), statement.items
    for condition in classified.residual:
        if condition.captured:
            raise scope.source.unsupported("a lambda's variable that is called as a column", condition.span)
    conditions = [f"{left.below} = {right.below}" for left, right in classified.equalities]
    conditions += [*classified.predicates[alias], *(condition.below for condition in classified.residual)]
    entry = JoinInput(alias, stream.name, range_of(item.window), grouping.keys, _distinct(conditions), ())
    return ContinuousQuery(text, (entry,), (), (), outputs, grouping)


def _reads(conjunct: Expression) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((ref.alias, ref.column) for ref in conjunct.refs.values()))


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
