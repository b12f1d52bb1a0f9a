"""Sub-queries in FROM that select and project: streams made of streams, before anything is joined or grouped.

`(SELECT k, v * 2 AS w FROM A WHERE v > 0 UNION ALL SELECT k, w FROM B) AS s` is a stream s with columns k and w, fed by
two sources. A row keeps the event time of the row it was made of, whether or not the time is selected. Sub-queries may
nest: a source is a registered stream and the selections that its rows pass, innermost first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.language.clauses import FromItem, Statement
from anabranch.language.conjuncts import conjuncts
from anabranch.language.expressions import Expression, bind
from anabranch.language.grouping import is_grouped
from anabranch.language.items import read_items
from anabranch.language.scope import open_scope
from anabranch.language.source import Source as Text
from anabranch.plan.logical import DERIVED_TIME, RESERVED, Output, Selection, Source, StreamSchema

# Sources are numbered in one byte of every row.
MAX_SOURCES = 100


@dataclass(frozen=True, slots=True)
class Derived:
    """A statement over streams only: some of them `made` by sub-queries, with their sources by name."""

    statement: Statement
    streams: Mapping[str, StreamSchema]
    made: tuple[StreamSchema, ...]
    sources: Mapping[str, tuple[Source, ...]]


def derive(text: Text, statement: Statement, known: Mapping[str, StreamSchema]) -> Derived:
    """The statement with every sub-query in FROM replaced by a stream that it makes."""
    items: list[FromItem] = []
    made: dict[str, StreamSchema] = {}
    sources: dict[str, tuple[Source, ...]] = {}
    for item in statement.items:
        if not item.branches:
            items.append(item)
            continue
        name = f"({item.alias})"
        branches = [_branch(text, branch, known) for branch in item.branches]
        made[name] = _combined(text, item, name, [schema for schema, _ in branches])
        sources[name] = tuple(_renamed(source, made[name].columns) for _, fed in branches for source in fed)
        items.append(replace(item, stream=name))
    fed = sum(map(len, sources.values()))
    if fed > MAX_SOURCES:
        raise text.unsupported(f"a query over {fed} SELECTs in sub-queries", hint=f"at most {MAX_SOURCES} are")
    return Derived(replace(statement, items=tuple(items)), {**known, **made}, tuple(made.values()), sources)


def _branch(
    text: Text, statement: Statement, known: Mapping[str, StreamSchema]
) -> tuple[StreamSchema, tuple[Source, ...]]:
    """The stream that one SELECT makes of another."""
    if len(statement.items) > 1:
        raise text.unsupported("a join in a sub-query", statement.items[1].span, yet=True)
    if is_grouped(statement):
        raise text.unsupported("GROUP BY, HAVING or DISTINCT in a sub-query", statement.items[0].span, yet=True)
    (item,) = statement.items
    if item.window is not None:
        hint = "write the window behind the sub-query's alias"
        raise text.unsupported("a window in a sub-query", item.window_span or item.span, hint)
    below = derive(text, statement, known)
    scope = open_scope(text, below.statement.items, below.streams, single=True)
    stream = next(iter(scope.streams.values()))
    outputs = []
    for output in read_items(statement, scope):
        if output.expression is not None:
            _refuse_captured(text, [output.expression])
        if output.name.startswith(RESERVED):
            raise text.unsupported(f"the name {output.name!r} for a column", statement.items[0].span)
        outputs.append(Output(output.name, output.below))
    parts = [part for condition in statement.conditions for part in conjuncts(bind(condition, scope))]
    _refuse_captured(text, parts)
    conditions = tuple(dict.fromkeys(part.below for part in parts))
    selection = Selection(conditions, tuple(outputs))
    fed = below.sources.get(stream.name, (Source(stream.name),))
    schema = StreamSchema(stream.name, tuple(output.name for output in outputs), stream.time, stream.lateness)
    return schema, tuple(replace(source, steps=(*source.steps, selection)) for source in fed)


def _combined(text: Text, item: FromItem, name: str, branches: Sequence[StreamSchema]) -> StreamSchema:
    """The stream that all branches of a sub-query make together: columns by place, named by the first."""
    columns = branches[0].columns
    for branch in branches[1:]:
        if len(branch.columns) != len(columns):
            counts = " and ".join(str(len(branch.columns)) for branch in branches)
            raise text.error(f"UNION ALL of {counts} columns; SELECT as many in each", item.span)
    timed = all(branch.time is not None for branch in branches)
    late = [branch.lateness for branch in branches]
    known = [lateness for lateness in late if lateness is not None]
    lateness = max(known) if timed and len(known) == len(late) else None
    return StreamSchema(name, columns, DERIVED_TIME if timed else None, lateness)


def _renamed(source: Source, names: Sequence[str]) -> Source:
    """The source with the columns of its last selection called by these names."""
    last = source.steps[-1]
    outputs = tuple(Output(name, output.expression) for name, output in zip(names, last.outputs, strict=True))
    return replace(source, steps=(*source.steps[:-1], replace(last, outputs=outputs)))


def _refuse_captured(text: Text, expressions: Sequence[Expression]) -> None:
    for expression in expressions:
        if expression.captured:
            raise text.unsupported("a lambda's variable that is called as a column", expression.span)
