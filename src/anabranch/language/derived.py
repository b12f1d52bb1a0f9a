"""Sub-queries in FROM: streams made of streams.

`(SELECT k, v * 2 AS w FROM A WHERE v > 0 UNION ALL SELECT k, w FROM B) AS s` is a stream s with columns k and w, fed by
two sources. A row keeps the event time of the row it was made of, whether or not the time is selected. Sub-queries may
nest: a source is a registered stream and the selections that its rows pass, innermost first.

A sub-query that joins or groups is a query by itself, a block; what it answers are the rows of the source. A joined row
has the time of its newest part, a group's answer that of the tuple it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch.language.clauses import FromItem, Statement
from anabranch.language.conjuncts import conjuncts
from anabranch.language.expressions import Expression, bind
from anabranch.language.grouping import is_grouped
from anabranch.language.items import read_items
from anabranch.language.scope import match, open_scope
from anabranch.language.source import SourceText, Span
from anabranch.plan.query import (
    DERIVED_TIME,
    RESERVED,
    ContinuousQuery,
    Output,
    Selection,
    Source,
    StreamSchema,
    quote,
)
from anabranch.plan.texts import inlined

# More than anybody needs; each is read by itself.
MAX_SOURCES = 100


@dataclass(frozen=True, slots=True)
class Derived:
    """A statement over streams only: some of them `made` by sub-queries, with their sources by name."""

    statement: Statement
    streams: Mapping[str, StreamSchema]
    made: tuple[StreamSchema, ...]
    sources: Mapping[str, tuple[Source, ...]]


# How a statement that joins or groups becomes a query.
BindBlock = Callable[[Statement], ContinuousQuery]


def derive(
    text: SourceText, statement: Statement, registered: Mapping[str, StreamSchema], bind_block: BindBlock
) -> Derived:
    """The statement with every sub-query in FROM replaced by a stream that it makes."""
    items: list[FromItem] = []
    made: dict[str, StreamSchema] = {}
    sources: dict[str, tuple[Source, ...]] = {}
    for item in statement.items:
        branches_of = item.branches or _as_sub_query(item, registered)
        if not branches_of:
            items.append(item)
            continue
        name = f"({item.alias})"
        branches = [_branch(text, branch, registered, bind_block) for branch in branches_of]
        made[name] = _combined(text, item.span, name, [schema for schema, _ in branches])
        sources[name] = tuple(_renamed(source, made[name].columns) for _, fed in branches for source in fed)
        items.append(replace(item, stream=name))
    fed = sum(map(len, sources.values()))
    if fed > MAX_SOURCES:
        raise text.unsupported(f"a query over {fed} SELECTs in sub-queries", hint=f"at most {MAX_SOURCES} are")
    return Derived(replace(statement, items=tuple(items)), {**registered, **made}, tuple(made.values()), sources)


def united_sources(
    text: SourceText, statements: Sequence[Statement], streams: Mapping[str, StreamSchema], bind_block: BindBlock
) -> tuple[Source, ...]:
    """The sources of statements that are united, with columns named by the first."""
    branches = [_branch(text, statement, streams, bind_block) for statement in statements]
    schema = _combined(text, statements[0].items[0].span, "", [schema for schema, _ in branches])
    return tuple(_renamed(source, schema.columns) for _, fed in branches for source in fed)


def flattened(source: Source) -> ContinuousQuery | None:
    """A block and the selections of its answer as one query; None if the source is no block."""
    if source.block is None:
        return None
    block = source.block
    conditions, outputs = inlined(block.outputs, source.steps)
    if block.grouping is not None:
        grouping = replace(block.grouping, conditions=(*block.grouping.conditions, *conditions))
        return replace(block, outputs=outputs, grouping=grouping)
    last = block.operators[-1]
    last = replace(last, conditions=(*last.conditions, *conditions))
    return replace(block, outputs=outputs, operators=(*block.operators[:-1], last))


def _branch(
    text: SourceText, statement: Statement, streams: Mapping[str, StreamSchema], bind_block: BindBlock
) -> tuple[StreamSchema, tuple[Source, ...]]:
    """The stream that one SELECT makes of others."""
    if is_block(statement, streams):
        return _block(text, statement, streams, bind_block(statement))
    (item,) = statement.items
    if item.window is not None:
        hint = "write the window behind the sub-query's alias"
        raise text.unsupported("a window in a sub-query", item.window_span or item.span, hint)
    below = derive(text, statement, streams, bind_block)
    scope = open_scope(text, below.statement.items, below.streams, single=True)
    stream = next(iter(scope.streams.values()))
    outputs = []
    for output in read_items(statement, scope):
        if output.expression is not None:
            refuse_captured(text, [output.expression])
        outputs.append(Output(_allowed(text, output.name, item), output.below))
    parts = [part for condition in statement.conditions for part in conjuncts(bind(condition, scope))]
    refuse_captured(text, parts)
    conditions = tuple(dict.fromkeys(part.below for part in parts))
    selection = Selection(conditions, tuple(outputs))
    fed = below.sources.get(stream.name, (Source(stream.name),))
    schema = StreamSchema(stream.name, tuple(output.name for output in outputs), stream.time, stream.lateness)
    return schema, tuple(replace(source, steps=(*source.steps, selection)) for source in fed)


def _as_sub_query(item: FromItem, streams: Mapping[str, StreamSchema]) -> tuple[Statement, ...]:
    """A sub-query of all columns, if the stream in FROM comes from a user's operator; otherwise nothing."""
    name = match(item.stream, streams)
    if name is None or streams[name].application is None:
        return ()
    return (Statement((replace(item, window=None, window_span=None, using=()),), (), (exp.Star(),)),)


def is_block(statement: Statement, streams: Mapping[str, StreamSchema]) -> bool:
    """Whether a statement needs state: it joins, groups, or reads results of a user's operator."""
    (first, *more) = statement.items
    name = match(first.stream, streams) if not first.branches else None
    return bool(more) or is_grouped(statement) or (name is not None and streams[name].application is not None)


def _block(
    text: SourceText, statement: Statement, registered: Mapping[str, StreamSchema], query: ContinuousQuery
) -> tuple[StreamSchema, tuple[Source, ...]]:
    names = tuple(_allowed(text, output.name, statement.items[0]) for output in query.outputs)
    streams = {**registered, **{schema.name: schema for schema in query.derived}}
    inputs = [streams[entry.stream] for entry in query.inputs]
    applied = query.grouping is not None and query.grouping.applied is not None
    timed = not applied and any(stream.time is not None for stream in inputs)
    late = [stream.lateness for stream in inputs]
    bounds = [lateness for lateness in late if lateness is not None]
    lateness = max(bounds) if timed and len(bounds) == len(late) else None
    schema = StreamSchema("", names, DERIVED_TIME if timed else None, lateness)
    step = Selection((), tuple(Output(name, quote(name)) for name in names))
    return schema, (Source("", (step,), query),)


def _allowed(text: SourceText, name: str, item: FromItem) -> str:
    if name.startswith(RESERVED):
        raise text.unsupported(f"the name {name!r} for a column", item.span)
    return name


def _combined(text: SourceText, span: Span, name: str, branches: Sequence[StreamSchema]) -> StreamSchema:
    """The stream that all branches of a sub-query make together: columns by place, named by the first."""
    columns = branches[0].columns
    for branch in branches[1:]:
        if len(branch.columns) != len(columns):
            counts = " and ".join(str(len(branch.columns)) for branch in branches)
            raise text.error(f"UNION ALL of {counts} columns; SELECT as many in each", span)
    timed = all(branch.time is not None for branch in branches)
    late = [branch.lateness for branch in branches]
    bounds = [lateness for lateness in late if lateness is not None]
    lateness = max(bounds) if timed and len(bounds) == len(late) else None
    return StreamSchema(name, columns, DERIVED_TIME if timed else None, lateness)


def _renamed(source: Source, names: Sequence[str]) -> Source:
    """The source with the columns of its last selection called by these names."""
    last = source.steps[-1]
    outputs = tuple(Output(name, output.expression) for name, output in zip(names, last.outputs, strict=True))
    return replace(source, steps=(*source.steps[:-1], replace(last, outputs=outputs)))


def refuse_captured(text: SourceText, expressions: Sequence[Expression]) -> None:
    """Refuse a lambda whose variable is called as a column that the expression reads."""
    for expression in expressions:
        if expression.captured:
            raise text.unsupported("a lambda's variable that is called as a column", expression.span)
